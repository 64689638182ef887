// Questions of section 6: choices, the index of the right one, and the worked answer. action: see questions.js.

export const QUESTIONS = [
  {
    text: "Why do a cache, batching and tensor parallelism not remove the wait between two neighbouring tokens?",
    choices: [
      "They do, if the machine is large enough.",
      "Because the next token's pass reads the token before it, which must be chosen first.",
      "Because they need too much memory.",
    ],
    right: 1,
    worked: [
      "A pass for token t + 1 has token t as input. The cache spares reading older tokens again, batching adds other requests to the pass, tensor parallelism makes the pass itself shorter. None of them makes token t known earlier.",
      "A draft does: it supplies guesses as known inputs, so that one pass can compute the rows of several positions. Which rows count is decided afterwards.",
    ],
  },
  {
    text: 'Prefix "I", draft "like green tea". The target accepts "like" and corrects "green" to "black". Why is "tea" not checked?',
    choices: [
      "It was checked, and failed too.",
      "There was no time left in the pass.",
      'Its row has read "I like green", which is no longer the text.',
    ],
    right: 2,
    action: "tea",
    worked: [
      'The row that would check "tea" predicts what follows "I like green". The text is "I like black", so that prediction is about a text that will never exist, even if "tea" happens to come next anyway.',
      'The round commits "like black", and the next round drafts from there. Keys and values of "I like" stay; "black" gets its own in the next pass.',
    ],
  },
  {
    text: "p = [.3, .7] and q = [.6, .4]. With what chance is each token accepted, and what is drawn after a rejection?",
    choices: [
      ".5 and 1; after a rejection always the second token.",
      ".3 and .7; after a rejection a draw from p.",
      ".5 and .57; after a rejection a draw from q.",
    ],
    right: 0,
    action: "exercise",
    worked: [
      "min(1, .3/.6) = .5 and min(1, .7/.4) = 1. Accepted mass: .6 × .5 = .3 and .4 × 1 = .4, together .7.",
      "The residual is max(p − q, 0) = [0, .3], so every correction is the second token. Output: [.3, .4 + .3] = [.3, .7] = p.",
    ],
  },
  {
    text: "How do temperature, top-k and top-p enter?",
    choices: [
      "Each needs its own acceptance rule.",
      "They shape p and q before the rule; the rule then sees what is really drawn from.",
      "Only the target's side needs them.",
    ],
    right: 1,
    action: "road",
    worked: [
      "Temperature flattens or sharpens, top-k keeps the k likeliest, top-p the smallest set that holds the given mass; what is left is made to sum to 1. The results are the p and q of the rule. (The k of top-k has nothing to do with the number of drafted tokens.)",
      "The draft may even use other settings than the target, as long as its q is recorded as it was drawn from. Under greedy decoding only the likeliest token matters, so these settings change nothing there, as long as they keep it.",
    ],
  },
  {
    text: "Sampling with a draft keeps the distribution. Does it give the same text as plain sampling with the same seed?",
    choices: ["Always.", "Not by itself: the random numbers are used for other things.", "Never, whatever one does."],
    right: 1,
    worked: [
      "Plain sampling spends one random number a token; the rule spends some on drafting, accepting and correcting. Both draw from p, and get different tokens.",
      "It can be had: if target and draft choose by log-probability plus noise that depends on seed, position and token alone, then verification by equality gives plain sampling's own tokens. That is what Sooner does for seeded requests.",
    ],
  },
  {
    text: "If the draft gives probability 0 to a token that the target likes, can the token come out?",
    choices: [
      "No, the output is then wrong by that much.",
      "Yes, through the residual, exactly as often as p says.",
      "Only if all drafts are rejected.",
    ],
    right: 1,
    action: "never",
    worked: [
      "It cannot be accepted, since it is never drafted. But p − q is positive there, so the correction supplies it: min(p, 0) + (p − 0) = p.",
    ],
  },
  {
    text: "All drafted tokens were accepted. Where does the bonus come from?",
    choices: [
      "From the row behind the last drafted token, which the pass has computed anyway.",
      "From one more pass of the target.",
      "From the draft.",
    ],
    right: 0,
    action: "bonus",
    worked: [
      "k drafted tokens give k + 1 rows. The last row has read the whole draft, and since all of it was accepted, its prediction is about the real text: greedy takes its likeliest token, sampling draws from it.",
    ],
  },
  {
    text: "May a bonus be added once the length limit is reached? And does a rejected end token end the answer?",
    choices: ["Yes, and yes.", "No, and no.", "No, and yes."],
    right: 1,
    worked: [
      "Stop rules count committed tokens. At the limit the answer ends, with or without a bonus waiting; a good engine drafts no more than it can still use.",
      "A drafted end token is a proposal like any other. Rejected, it has never happened. Accepted, it ends the answer there, and the rest of the round is dropped.",
    ],
  },
  {
    text: "Plain decoding takes 8 ms a token. A round takes 20 ms and commits 2 tokens. Faster? And with 4?",
    choices: ["Faster both times.", "Slower with 2, faster with 4.", "Slower both times."],
    right: 1,
    action: "two",
    worked: ["20 / 2 = 10 ms a token: slower than 8. 20 / 4 = 5 ms: 1.6 times as fast."],
  },
  {
    text: "With 4 tokens a round, decoding is 1.6 times as fast. Is the whole request?",
    choices: ["Yes.", "Only where nothing but decoding takes time.", "It is even faster."],
    right: 1,
    action: "two",
    worked: [
      "Take 500 ms for reading the prompt and 50 tokens of answer: 500 + 50 × 8 = 900 ms without drafting, 500 + 50 × 5 = 750 ms with it: 1.2 times. The shorter the answer and the longer the prompt, the less is left. On a busy server the spare capacity may be gone as well.",
    ],
  },
  {
    text: '"Speculative decoding gives 2 to 3 times." What is wrong with that sentence?',
    choices: ["Nothing.", "It leaves out the text, the draft's cost, the machine and the load.", "It is always more."],
    right: 1,
    worked: [
      "Acceptance depends on text and draft, and a round's cost on machine and load. Section 5 has texts where the same engine gains a lot and texts where it loses; section 4 turns a gain into a loss with nothing but more requests at once.",
    ],
  },
];
