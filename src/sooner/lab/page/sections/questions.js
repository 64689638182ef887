// Section 6: self-check questions with worked answers.

import { button, h, show } from "../ui.js";
import { QUESTIONS } from "./question_texts.js";

export function startQuestions(place, lab) {
  const actions = {
    exercise: ["Set it above", "position", () => lab.position.load([0.3, 0.7], [0.6, 0.4])],
    road: [
      "Set temperature .5 and top-k 2 above",
      "position",
      () => lab.position.load([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], { temperature: 0.5, topK: 2 }),
    ],
    never: ["Set it above", "position", () => lab.position.load([0, 0.3, 0.7], [0.5, 0.5, 0])],
    tea: ["Step through it above", "round", () => lab.round.show("words-greedy")],
    bonus: ["Look for a bonus above", "round", () => lab.round.show("edit-greedy")],
    two: [
      "Set 2 tokens above",
      "pays",
      () => lab.pays.load({ plain: 8, round: 20, tokens: 2, prefill: 500, answer: 50 }),
    ],
  };
  show(
    place,
    QUESTIONS.map((question, number) => ask(question, number, actions[question.action])),
  );
}

function ask({ text, choices, right, worked }, number, action) {
  const name = `q${number + 1}`,
    verdict = h("p", { class: "verdict", role: "status" });
  const worked_ = h(
    "div",
    { class: "worked", hidden: true, id: `${name}-answer` },
    worked.map((paragraph) => h("p", {}, paragraph)),
    action && tryIt(action),
  );
  const check = (chosen) => {
    const ok = chosen === right;
    verdict.textContent = ok ? "Right." : "Not quite; here is why.";
    verdict.className = `verdict ${ok ? "right" : "wrong"}`;
    worked_.hidden = false;
  };
  return h(
    "div",
    { class: "question", id: name },
    h("h3", { id: `${name}-text` }, `${number + 1}. ${text}`),
    h(
      "fieldset",
      { "aria-labelledby": `${name}-text` },
      choices.map((choice, i) =>
        h("label", {}, h("input", { type: "radio", name, value: i, change: () => check(i) }), choice),
      ),
    ),
    verdict,
    worked_,
  );
}

function tryIt([label, section, act]) {
  return button(label, () => {
    act();
    const title = document.getElementById(`${section}-title`);
    title.setAttribute("tabindex", "-1");
    title.focus();
    title.scrollIntoView();
  });
}
