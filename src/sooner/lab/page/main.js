// Starts the page: the theme, the data that the package wrote, and the six sections.

import { h } from "./ui.js";
import { startPosition } from "./sections/position.js";
import { startRound } from "./sections/round.js";
import { startSequences } from "./sections/sequences.js";
import { startPays } from "./sections/pays.js";
import { startResults } from "./sections/results.js";
import { startQuestions } from "./sections/questions.js";

const THEMES = ["auto", "light", "dark"];

function startTheme() {
  const toggle = document.getElementById("theme");
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
    try {
      localStorage.setItem("theme", theme);
    } catch {} // a browser that keeps nothing still shows the page
  };
  let stored = null;
  try {
    stored = localStorage.getItem("theme");
  } catch {}
  set(THEMES.includes(stored) ? stored : "auto");
  toggle.addEventListener("click", () => set(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
}

async function load(name) {
  const answer = await fetch(`data/${name}.json`);
  if (!answer.ok) throw new Error(`data/${name}.json: ${answer.status}`);
  return answer.json();
}

async function start() {
  document.getElementById("unstarted").remove();
  startTheme();
  const [pairs, results, traces] = await Promise.all(["pairs", "results", "traces"].map(load));
  const lab = { position: startPosition(document.getElementById("position-lab"), pairs.typical_errors) };
  lab.round = startRound(document.getElementById("round-lab"), traces);
  lab.sequences = startSequences(document.getElementById("sequences-lab"), pairs);
  lab.pays = startPays(document.getElementById("pays-lab"), results);
  startResults(document.getElementById("results-lab"), results);
  startQuestions(document.getElementById("questions-lab"), lab);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  document
    .querySelector("main")
    .prepend(h("p", { class: "error", role: "alert" }, `The lab could not start: ${error.message}`));
  throw error;
});
