// Index: the runs and studies of a watched folder, with a search; asked for again every two seconds.

(async () => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
  let entries = [];

  function cell(tag, content) {
    const node = document.createElement(tag);
    node.append(typeof content === "string" ? content.replace(UNSEEN, "\ufffd") : content);
    return node;
  }

  function line(entry) {
    const link = cell("a", entry.name);
    link.href = `view/${entry.key}/`;
    const accuracy = entry.accuracy === null ? "–" : `${(entry.accuracy * 100).toFixed(2)} %`;
    const row = document.createElement("tr");
    const head = cell("th", link);
    head.scope = "row";
    row.append(head, ...[entry.kind, entry.state, entry.rounds, accuracy, entry.about].map((text) => cell("td", text)));
    return row;
  }

  function show() {
    const words = byId("search-box").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (entry) => [entry.name, entry.kind, entry.state, entry.about].join(" ").toLowerCase();
    const found = entries.filter((entry) => words.every((word) => text(entry).includes(word)));
    const [list, head, body] = ["table", "thead", "tbody"].map((tag) => document.createElement(tag));
    const titles = document.createElement("tr");
    for (const name of ["name", "kind", "state", "rounds", "accuracy", "task and recipe"]) {
      const title = cell("th", name);
      title.scope = "col";
      titles.append(title);
    }
    head.append(titles);
    body.append(...found.map(line));
    list.append(head, body);
    byId("list").replaceChildren(list);
    byId("none").textContent = found.length ? "" : "Nothing here has these words.";
    byId("lead").textContent = `${found.length} of ${entries.length}. Open one to see it grow.`;
  }

  async function ask() {
    const before = JSON.stringify(entries);
    try {
      entries = await (await fetch("index")).json();
      if (JSON.stringify(entries) !== before) show();
    } catch {
      byId("none").textContent = "No answer from fedmerit watch; trying again.";
    }
    window.setTimeout(ask, 2000);
  }

  byId("search-box").addEventListener("input", show);
  await ask();
})();
