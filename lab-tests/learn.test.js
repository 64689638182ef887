// Sections 1 to 3: every interaction, in headless Chromium.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cells, file, inSection, onPage, suite, texts, values } from "./support.js";

suite("sections 1 to 3", () => {
  test("1: examples, editing, the road", () =>
    onPage(async (page) => {
      assert.deepEqual(
        (await cells(page, "#position-table")).map((row) => row.slice(3)),
        [
          ["1.0000", "0.2000", "1.0000", "0.6000"],
          ["0.6000", "0.3000", "0.0000", "0.3000"],
          ["0.3333", "0.1000", "0.0000", "0.1000"],
        ],
      );
      await inSection(page, "position", "Example").selectOption("exercise");
      assert.deepEqual(
        (await cells(page, "#position-table")).map((row) => row[3]),
        ["0.5000", "1.0000"],
      );
      await inSection(page, "position", "Example").selectOption("never");
      assert.equal((await cells(page, "#position-table"))[2][3], "never drafted");
      await inSection(page, "position", "Example").selectOption("six");
      assert.match((await texts(page, "#position-stats"))[0], /0\.6500/);
      await inSection(page, "position", "Tokens").fill("8");
      assert.equal((await cells(page, "#position-table")).length, 8);
      await inSection(page, "position", "Example").selectOption("two");
      await inSection(page, "position", "target p of A").fill("1.5"); // above the limit: marked, and nothing changes
      assert.equal(await inSection(page, "position", "target p of A").getAttribute("aria-invalid"), "");
      assert.equal((await cells(page, "#position-table"))[0][1], "0.4000");
      await inSection(page, "position", "target p of A").fill("0.6"); // .6 and .6
      assert.equal((await cells(page, "#position-table"))[0][1], "0.5000");
      await inSection(page, "position", "Temperature").fill("0");
      assert.deepEqual(
        (await cells(page, "#position-table")).map((row) => row[1]),
        ["1.0000", "0.0000"],
      );
      await inSection(page, "position", "Temperature, slider").fill("0.5");
      assert.equal((await cells(page, "#position-table"))[0][2], "0.9412"); // .64 / (.64 + .04)
      await inSection(page, "position", "Top-k").fill("1");
      assert.equal((await cells(page, "#position-table"))[0][2], "1.0000");
      await inSection(page, "position", "target p of A").fill("0");
      await inSection(page, "position", "target p of B").fill("0");
      assert.match((await texts(page, "#position [role=alert]"))[0], /at least one token/);
    }));

  test("1: ten thousand draws are the package's, in under 100 ms", () =>
    onPage(async (page) => {
      const wanted = values.positions.find(
        ({ weights, road }) => weights[0][0] === 0.4 && road.temperature === 1 && road.topP === 1,
      );
      await inSection(page, "position", "Example").selectOption("two");
      await inSection(page, "position", "Seed").fill(`${values.seed}`);
      await page.click("#draw");
      const drawn = page.locator(`#drawn[data-done="${values.draws}"]`);
      await drawn.waitFor();
      assert.equal(await drawn.getAttribute("data-counts"), wanted.drawn.counts.join(","));
      const spent = [];
      for (let i = 0; i < 3; i++) {
        // the fastest of three: whoever else uses the machine makes it slower, never faster
        spent.push(Number(await drawn.getAttribute("data-ms")));
        await page.click("#draw");
        await drawn.waitFor();
      }
      assert.ok(Math.min(...spent) < 100, `${spent} ms`);
      assert.equal(
        Number(await page.locator("#coupled").getAttribute("data-same")),
        wanted.coupled.accepted / values.draws,
      );
    }));

  test("1: draws come in parts where motion is welcome", () =>
    onPage(
      async (page) => {
        await page.click("#draw");
        await page.locator(`#drawn[data-done="${values.draws}"]`).waitFor();
      },
      { reducedMotion: "no-preference" },
    ));

  test("1: wrong rules, each with its error and its output", () =>
    onPage(async (page) => {
      await inSection(page, "position", "Example").selectOption("six");
      const errors = (await cells(page, "#wrong-table")).map((row) => row[1]);
      assert.equal(errors.length, 9);
      assert.equal(errors[0], "0.1575");
      await page.click("#rule-same_stream");
      assert.equal(await page.locator("#rule-same_stream").getAttribute("aria-pressed"), "true");
      assert.ok(await page.locator("#rule-same_stream").evaluate((button) => button === document.activeElement));
      assert.match((await texts(page, "#position figcaption")).join(), /random number again/);
    }));

  test("2: every recording shows the engine's tokens of today", () =>
    onPage(async (page) => {
      for (const { key, rounds } of values.traces) {
        await inSection(page, "round", "Recorded answer").selectOption(key);
        await page.click("#round-end");
        assert.equal(
          await page.locator("#trace-text").getAttribute("data-tokens"),
          rounds.flatMap(({ committed }) => committed.map(([id]) => id)).join(","),
          key,
        );
        assert.equal(await page.locator("#round-next").isDisabled(), true);
      }
    }));

  test("2: the classic example, step by step", () =>
    onPage(async (page) => {
      assert.match((await texts(page, "#round-view [role=status]"))[0], /Round 2 of 3: draft.*3 tokens after I/);
      await page.click("#round-next");
      assert.deepEqual(await cells(page, "#rows-table"), [
        ["1", "I", "␣like", "␣like", "accepted"],
        ["2", "␣like", "␣green", "␣black", "rejected; correction ␣black"],
        ["3", "␣green", "␣tea", "computed, never looked at", "its prefix holds ␣green, which was rejected"],
        [
          "4",
          "␣tea",
          "nothing: it gives the bonus",
          "computed, never looked at",
          "its prefix holds ␣green, which was rejected",
        ],
      ]);
      await page.click("#round-next");
      assert.match(
        (await texts(page, "#round-view [role=status]"))[0],
        /1 accepted\. ␣green is rejected.*dropped unseen/,
      );
      assert.equal(await page.locator("#round .is-dropped").count(), 2);
      await page.click("#round-next");
      assert.deepEqual(
        (await cells(page, "#cache-table")).slice(-4).map((row) => row[2]),
        [
          "kept: accepted",
          "dropped: not part of the answer",
          "dropped: not part of the answer",
          "not computed yet: the next pass reads this correction",
        ],
      );
      await page.click("#round-skip");
      await page.click("#round-next");
      await page.click("#round-next");
      assert.match((await texts(page, "#round-view [role=status]"))[0], /the answer ends with <end>.*no bonus/);
      await page.click("#round-back");
      assert.match((await texts(page, "#round-view [role=status]"))[0], /Round 3 of 3: verify/);
    }));

  test("2: a sampled round shows p, q and chances", () =>
    onPage(async (page) => {
      await inSection(page, "round", "Recorded answer").selectOption("words-sampled");
      await page.click("#round-next");
      assert.equal((await cells(page, "#rows-table"))[1][3], "p 0.30, q 0.60: accept with 0.50");
    }));

  test("2: it plays by itself, and pauses", () =>
    onPage(async (page) => {
      await page.click("#round-play");
      await page.locator('#round [aria-current="step"]', { hasText: "Verify" }).waitFor();
      await page.click("#round-play");
      assert.equal(await page.locator("#round-play").innerText(), "Play");
    }));

  const ROUND = {
    request_id: "0",
    start: 5,
    drafter: "suffix",
    rule: "match",
    reason: "",
    draft: [7, 8],
    accepted: 1,
    committed: [7, 9],
    kind: "correction",
    draft_text: " a b",
    committed_text: " a c",
    draft_pieces: [" a", " b"],
    committed_pieces: [" a", " c"],
    draft_s: 0,
    target_s: 0,
    verify_s: 0,
    commit_s: 0,
  };

  test("2: your own trace, and files that are none", () =>
    onPage(async (page) => {
      const chooser = page.locator("#round input[type=file]");
      const lines = [
        ROUND,
        {
          ...ROUND,
          start: 7,
          draft: [],
          draft_pieces: [],
          accepted: 0,
          committed: [3],
          committed_pieces: ["!"],
          committed_text: "!",
          kind: "bonus",
        },
      ];
      await chooser.setInputFiles(file("mine.jsonl", lines.map((line) => JSON.stringify(line)).join("\n")));
      await page.click("#round-end");
      assert.equal(await page.locator("#trace-text").innerText(), " a c!");
      for (const [text, complaint] of [
        ["{", /Line 1 is not JSON/],
        ["", /no rounds/],
        [JSON.stringify({ ...ROUND, draft: "x" }), /Line 1: the field draft is "x"/],
        [JSON.stringify({ ...ROUND, kind: undefined }), /field kind is missing/],
        [JSON.stringify({ ...ROUND, accepted: 3 }), /accepted is 3, above/],
        [JSON.stringify({ ...ROUND, committed: [] }), /committed is empty|above/],
        [JSON.stringify({ ...ROUND, parents: [-1] }), /parents has 1 entries/],
      ]) {
        await chooser.setInputFiles(file("bad.jsonl", text));
        await page.locator("#trace-error", { hasText: complaint }).waitFor({ timeout: 2000 });
      }
    }));

  test("2: a draft that is a tree", () =>
    onPage(async (page) => {
      const tree = {
        ...ROUND,
        draft: [7, 8, 9, 10],
        parents: [-1, -1, 1, 1],
        accepted: 2,
        committed: [8, 10, 11],
        kind: "bonus",
        draft_pieces: [" a", " b", " c", " d"],
        committed_pieces: [" b", " d", " e"],
        committed_text: " b d e",
      };
      await page.locator("#round input[type=file]").setInputFiles(file("tree.jsonl", JSON.stringify(tree)));
      await page.click("#round-next");
      assert.deepEqual(await cells(page, "#rows-table"), [
        ["4", "prompt 5", "␣a or ␣b", "␣b", "accepted"],
        [
          "5",
          "␣a",
          "nothing: it gives the bonus",
          "computed, never looked at",
          "its prefix holds ␣a, which was rejected",
        ],
        ["6", "␣b", "␣c or ␣d", "␣d", "accepted"],
        [
          "7",
          "␣c",
          "nothing: it gives the bonus",
          "computed, never looked at",
          "its prefix holds ␣c, which was rejected",
        ],
        ["8", "␣d", "nothing: it gives the bonus", "␣e", "bonus ␣e"],
      ]);
      await page.click("#round-next");
      assert.match((await texts(page, "#round-view [role=status]"))[0], /2 on one branch are accepted.*bonus: ␣e/);
      await page.click("#round-next");
      assert.deepEqual(
        (await cells(page, "#cache-table")).slice(-5).map((row) => row[2]),
        [
          "dropped: not part of the answer",
          "kept: accepted, moved to 5",
          "dropped: not part of the answer",
          "kept: accepted, moved to 6",
          "not computed yet: the next pass reads this bonus",
        ],
      );
    }));

  test("3: the published experiment, exactly and as a run", () =>
    onPage(async (page) => {
      assert.deepEqual(
        (await cells(page, "#shortfall-table")).map((row) => row[1]),
        ["3.6421", "3.5502", "3.6456", "3.5425"],
      );
      assert.match((await texts(page, "#chain-stats"))[0], /72%/);
      await inSection(page, "sequences", "Sequences").fill("3000");
      await page.click("#run");
      const simulated = page.locator('#simulated[data-done="true"]');
      await simulated.waitFor();
      const [mean, error] = await Promise.all(
        ["data-per-call", "data-error"].map((name) => simulated.getAttribute(name).then(Number)),
      );
      assert.ok(Math.abs(mean - 3.5425) < 4 * error && error < 0.01, `${mean} +- ${error}`);
    }));

  test("3: other pairs, blur and lengths", () =>
    onPage(async (page) => {
      await inSection(page, "sequences", "Blur of the draft").fill("0");
      assert.equal((await cells(page, "#shortfall-table"))[2][1], "5.0000");
      await inSection(page, "sequences", "Target").selectOption("moody");
      const rows = (await cells(page, "#shortfall-table")).map((row) => Number(row[1]));
      assert.ok(rows[2] < 0.92 * rows[0]);
      await inSection(page, "sequences", "Target").selectOption("random");
      const before = await cells(page, "#shortfall-table");
      await inSection(page, "sequences", "Blur of the draft").fill("0.7");
      await inSection(page, "sequences", "Seed").fill("8");
      await inSection(page, "sequences", "Draft length").fill("0");
      await inSection(page, "sequences", "Tokens of a sequence").fill("20");
      assert.notDeepEqual(await cells(page, "#shortfall-table"), before);
      assert.equal((await cells(page, "#shortfall-table"))[3][1], "1.0000");
    }));
});
