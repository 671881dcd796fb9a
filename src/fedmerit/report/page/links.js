// Links: an address for each client and round of a run (#run/round/client), and the drawer that tells its reason.

const ADDRESS = /^#(\d+)\/(\d+)\/(\d+)$/;
const addressOf = ({ run, round, client }) => `#${run}/${round}/${client}`;

// What the page's address names; null where it names a section, or something that is not here.
function addressed() {
  const found = ADDRESS.exec(window.location.hash);
  if (!found) return null;
  const [run, round, client] = found.slice(1).map(Number);
  return SHOWN.includes(RUNS[run]) ? { run, round, client } : null;
}

function keepAddress() {
  window.history.replaceState(null, "", addressOf(state));
}

// What is chosen, in the reason's card; on a phone this is a drawer.
function showReason() {
  const run = RUNS[state.run];
  const none = !numbersOf(run).length;
  $("reason").hidden = none;
  if (none) return;
  const [first, ...others] = whyTexts();
  $("reason-says").replaceChildren(...first);
  $("reason-more").replaceChildren(...others.map((line) => el("li", line)));
  $("reason-link").setAttribute("href", addressOf(state));
}

function openDrawer() {
  $("reason").classList.add("open");
  if (!narrow() && window.innerWidth < BESIDE) reveal($("reason"));
}
const BESIDE = 992; // px, 62rem: from here on the reason stands beside the map

function listenToLinks() {
  $("reason-close").addEventListener("click", () => {
    $("reason").classList.remove("open");
    $("weights-plot").focus({ preventScroll: true });
  });
  $("reason-all").addEventListener("click", () => {
    $("reason").classList.remove("open");
    reveal($("explain"));
  });
  window.addEventListener("hashchange", () => {
    const wanted = addressed();
    if (wanted) choose(wanted).then(openDrawer);
  });
}
