// Data: what was suspicious about the table of a run before round 1, its columns, and the labels of each client.

function showData() {
  const run = RUNS[state.run];
  const data = run.data;
  $("table-says").textContent = data ? dataText(data.suspicions.length) : `${shorten(run.label)} has no table.`;
  const { suspicions, files, columns, labels } = data ?? { suspicions: [], files: [], columns: [], labels: [] };
  const questions = suspicions.map(([kind, text]) => el("li", el("strong", `${kind}: `), clean(text)));
  $("table-suspicions").replaceChildren(...questions);
  const words = ["column", "kind", "role", "gaps", "distinct", "values"];
  $("table-columns").replaceChildren(dataTable(columns.map((one) => words.map((word) => one[word] ?? "")), words));
  const names = ["file", "rows", "columns", "form"];
  $("table-files").replaceChildren(dataTable(files.map((one) => names.map((name) => one[name] ?? "")), names));
  const header = ["client", ...(labels[0]?.[1] ?? []).map(([label]) => clean(label))];
  const lines = labels.map(([client, counts]) => [client, ...counts.map(([, count]) => count)]);
  $("table-labels").replaceChildren(dataTable(lines, header));
  for (const part of [$("table-files"), $("table-columns"), $("table-labels")]) part.hidden = !part.querySelector("td");
}

function dataText(count) {
  const rest = "Each names the key of the configuration that settles it.";
  return count ? `${plural(count, "question")} about the data, the gravest first. ${rest}` : "Nothing is suspicious.";
}

function dataTable(lines, header) {
  const cells = (line) => line.map((cell) => (typeof cell === "number" ? cell.toLocaleString("en") : clean(cell)));
  return table(null, header, lines.map(cells), (i) => lines.length > 0 && typeof lines[0][i] === "number");
}
