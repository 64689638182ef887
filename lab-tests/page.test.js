// Every interaction of the page, in headless Chromium.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import AxeCore from "axe-core";
import { agree, cells, inSection, lab, onPage, suite, texts, values } from "./support.js";

const SECTIONS = ["position", "round", "sequences", "pays", "results", "questions"];
const file = (name, text) => ({ name, mimeType: "application/json", buffer: Buffer.from(text) });

suite("the page", () => {
  test("first paint within a second, under 1.5 MB, nothing from elsewhere", async () => {
    const paints = [];
    for (let i = 0; i < 3; i++) { // whoever else uses the machine makes a paint later, never earlier
      await onPage(async (page) => {
        paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
        const bytes = await page.evaluate(() => performance.getEntriesByType("resource").reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0));
        assert.ok(bytes > 50_000 && bytes < 1_500_000, `${bytes} bytes`);
      });
    }
    assert.ok(Math.min(...paints) < 1000, `first paints after ${paints} ms`);
  });

  test("the policy forbids scripts and requests of others", () => onPage(async (page) => {
    const blocked = await page.evaluate(async () => {
      const caught = [];
      document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => caught.push(effectiveDirective));
      const script = document.createElement("script");
      script.textContent = "window.intruder = true";
      document.body.append(script);
      await new Promise((resolve) => setTimeout(resolve, 100));
      return { caught: [...new Set(caught)], intruder: window.intruder }; // header and page say the same
    });
    assert.deepEqual(blocked, { caught: ["script-src-elem"], intruder: undefined });
  }, {}, /Content Security Policy/));

  test("1: examples, editing, the road", () => onPage(async (page) => {
    assert.deepEqual((await cells(page, "#position-table")).map((row) => row.slice(3)), [
      ["1.0000", "0.2000", "1.0000", "0.6000"], ["0.6000", "0.3000", "0.0000", "0.3000"], ["0.3333", "0.1000", "0.0000", "0.1000"],
    ]);
    await inSection(page, "position", "Example").selectOption("exercise");
    assert.deepEqual((await cells(page, "#position-table")).map((row) => row[3]), ["0.5000", "1.0000"]);
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
    assert.deepEqual((await cells(page, "#position-table")).map((row) => row[1]), ["1.0000", "0.0000"]);
    await inSection(page, "position", "Temperature, slider").fill("0.5");
    assert.equal((await cells(page, "#position-table"))[0][2], "0.9412"); // .64 / (.64 + .04)
    await inSection(page, "position", "Top-k").fill("1");
    assert.equal((await cells(page, "#position-table"))[0][2], "1.0000");
    await inSection(page, "position", "target p of A").fill("0");
    await inSection(page, "position", "target p of B").fill("0");
    assert.match((await texts(page, "#position [role=alert]"))[0], /at least one token/);
  }));

  test("1: ten thousand draws are the package's, in under 100 ms", () => onPage(async (page) => {
    const wanted = values.positions.find(({ weights, road }) => weights[0][0] === 0.4 && road.temperature === 1 && road.topP === 1);
    await inSection(page, "position", "Example").selectOption("two");
    await inSection(page, "position", "Seed").fill(`${values.seed}`);
    await page.click("#draw");
    const drawn = page.locator(`#drawn[data-done="${values.draws}"]`);
    await drawn.waitFor();
    assert.equal(await drawn.getAttribute("data-counts"), wanted.drawn.counts.join(","));
    const spent = [];
    for (let i = 0; i < 3; i++) { // the fastest of three: whoever else uses the machine makes it slower, never faster
      spent.push(Number(await drawn.getAttribute("data-ms")));
      await page.click("#draw");
      await drawn.waitFor();
    }
    assert.ok(Math.min(...spent) < 100, `${spent} ms`);
    assert.equal(Number(await page.locator("#coupled").getAttribute("data-same")), wanted.coupled.accepted / values.draws);
  }));

  test("1: draws come in parts where motion is welcome", () => onPage(async (page) => {
    await page.click("#draw");
    await page.locator(`#drawn[data-done="${values.draws}"]`).waitFor();
  }, { reducedMotion: "no-preference" }));

  test("1: wrong rules, each with its error and its output", () => onPage(async (page) => {
    await inSection(page, "position", "Example").selectOption("six");
    const errors = (await cells(page, "#wrong-table")).map((row) => row[1]);
    assert.equal(errors.length, 9);
    assert.equal(errors[0], "0.1575");
    await page.click("#rule-same_stream");
    assert.equal(await page.locator("#rule-same_stream").getAttribute("aria-pressed"), "true");
    assert.ok(await page.locator("#rule-same_stream").evaluate((button) => button === document.activeElement));
    assert.match((await texts(page, "#position figcaption")).join(), /random number again/);
  }));

  test("2: every recording shows the engine's tokens of today", () => onPage(async (page) => {
    for (const { key, rounds } of values.traces) {
      await inSection(page, "round", "Recorded answer").selectOption(key);
      await page.click("#round-end");
      assert.equal(await page.locator("#trace-text").getAttribute("data-tokens"), rounds.flatMap(({ committed }) => committed.map(([id]) => id)).join(","), key);
      assert.equal(await page.locator("#round-next").isDisabled(), true);
    }
  }));

  test("2: the classic example, step by step", () => onPage(async (page) => {
    assert.match((await texts(page, "#round-view [role=status]"))[0], /Round 2 of 3: draft.*3 tokens after I/);
    await page.click("#round-next");
    assert.deepEqual(await cells(page, "#rows-table"), [
      ["1", "I", "␣like", "␣like", "accepted"],
      ["2", "␣like", "␣green", "␣black", "rejected; correction ␣black"],
      ["3", "␣green", "␣tea", "computed, never looked at", "its prefix holds ␣green, which was rejected"],
      ["4", "␣tea", "nothing: it gives the bonus", "computed, never looked at", "its prefix holds ␣green, which was rejected"],
    ]);
    await page.click("#round-next");
    assert.match((await texts(page, "#round-view [role=status]"))[0], /1 accepted\. ␣green is rejected.*dropped unseen/);
    assert.equal(await page.locator("#round .is-dropped").count(), 2);
    await page.click("#round-next");
    assert.deepEqual((await cells(page, "#cache-table")).slice(-4).map((row) => row[2]), [
      "kept: accepted", "dropped: not part of the answer", "dropped: not part of the answer", "not computed yet: the next pass reads this correction",
    ]);
    await page.click("#round-skip");
    await page.click("#round-next");
    await page.click("#round-next");
    assert.match((await texts(page, "#round-view [role=status]"))[0], /the answer ends with <end>.*no bonus/);
    await page.click("#round-back");
    assert.match((await texts(page, "#round-view [role=status]"))[0], /Round 3 of 3: verify/);
  }));

  test("2: a sampled round shows p, q and chances", () => onPage(async (page) => {
    await inSection(page, "round", "Recorded answer").selectOption("words-sampled");
    await page.click("#round-next");
    assert.equal((await cells(page, "#rows-table"))[1][3], "p 0.30, q 0.60: accept with 0.50");
  }));

  test("2: it plays by itself, and pauses", () => onPage(async (page) => {
    await page.click("#round-play");
    await page.locator('#round [aria-current="step"]', { hasText: "Verify" }).waitFor();
    await page.click("#round-play");
    assert.equal(await page.locator("#round-play").innerText(), "Play");
  }));

  const ROUND = { request_id: "0", start: 5, drafter: "suffix", rule: "match", reason: "", draft: [7, 8], accepted: 1, committed: [7, 9], kind: "correction",
    draft_text: " a b", committed_text: " a c", draft_pieces: [" a", " b"], committed_pieces: [" a", " c"], draft_s: 0, target_s: 0, verify_s: 0, commit_s: 0 };

  test("2: your own trace, and files that are none", () => onPage(async (page) => {
    const chooser = page.locator("#round input[type=file]");
    const lines = [ROUND, { ...ROUND, start: 7, draft: [], draft_pieces: [], accepted: 0, committed: [3], committed_pieces: ["!"], committed_text: "!", kind: "bonus" }];
    await chooser.setInputFiles(file("mine.jsonl", lines.map((line) => JSON.stringify(line)).join("\n")));
    await page.click("#round-end");
    assert.equal(await page.locator("#trace-text").innerText(), " a c!");
    for (const [text, complaint] of [
      ["{", /Line 1 is not JSON/], ["", /no rounds/], [JSON.stringify({ ...ROUND, draft: "x" }), /Line 1: the field draft is "x"/],
      [JSON.stringify({ ...ROUND, kind: undefined }), /field kind is missing/], [JSON.stringify({ ...ROUND, accepted: 3 }), /accepted is 3, above/],
      [JSON.stringify({ ...ROUND, committed: [] }), /committed is empty|above/], [JSON.stringify({ ...ROUND, parents: [-1] }), /parents has 1 entries/],
    ]) {
      await chooser.setInputFiles(file("bad.jsonl", text));
      await page.locator("#trace-error", { hasText: complaint }).waitFor({ timeout: 2000 });
    }
  }));

  test("2: a draft that is a tree", () => onPage(async (page) => {
    const tree = { ...ROUND, draft: [7, 8, 9, 10], parents: [-1, -1, 1, 1], accepted: 2, committed: [8, 10, 11], kind: "bonus",
      draft_pieces: [" a", " b", " c", " d"], committed_pieces: [" b", " d", " e"], committed_text: " b d e" };
    await page.locator("#round input[type=file]").setInputFiles(file("tree.jsonl", JSON.stringify(tree)));
    await page.click("#round-next");
    assert.deepEqual(await cells(page, "#rows-table"), [
      ["4", "prompt 5", "␣a or ␣b", "␣b", "accepted"],
      ["5", "␣a", "nothing: it gives the bonus", "computed, never looked at", "its prefix holds ␣a, which was rejected"],
      ["6", "␣b", "␣c or ␣d", "␣d", "accepted"],
      ["7", "␣c", "nothing: it gives the bonus", "computed, never looked at", "its prefix holds ␣c, which was rejected"],
      ["8", "␣d", "nothing: it gives the bonus", "␣e", "bonus ␣e"],
    ]);
    await page.click("#round-next");
    assert.match((await texts(page, "#round-view [role=status]"))[0], /2 on one branch are accepted.*bonus: ␣e/);
    await page.click("#round-next");
    assert.deepEqual((await cells(page, "#cache-table")).slice(-5).map((row) => row[2]), [
      "dropped: not part of the answer", "kept: accepted, moved to 5", "dropped: not part of the answer", "kept: accepted, moved to 6", "not computed yet: the next pass reads this bonus",
    ]);
  }));

  test("3: the published experiment, exactly and as a run", () => onPage(async (page) => {
    assert.deepEqual((await cells(page, "#shortfall-table")).map((row) => row[1]), ["3.6421", "3.5502", "3.6456", "3.5425"]);
    assert.match((await texts(page, "#chain-stats"))[0], /72%/);
    await inSection(page, "sequences", "Sequences").fill("3000");
    await page.click("#run");
    const simulated = page.locator('#simulated[data-done="true"]');
    await simulated.waitFor();
    const [mean, error] = await Promise.all(["data-per-call", "data-error"].map((name) => simulated.getAttribute(name).then(Number)));
    assert.ok(Math.abs(mean - 3.5425) < 4 * error && error < 0.01, `${mean} +- ${error}`);
  }));

  test("3: other pairs, blur and lengths", () => onPage(async (page) => {
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

  test("4: the published tables, digit by digit", () => onPage(async (page) => {
    assert.deepEqual((await cells(page, "#tokens-table")).filter((_, i) => i % 2 === 0).map((row) => row.slice(1, 4)), [
      ["1.5000", "1.9375", "1.9961"], ["1.7000", "2.7731", "3.1988"], ["1.9000", "4.0951", "6.1258"],
    ]);
    assert.deepEqual(await cells(page, "#best-table"), [
      ["0.5", "2", "1.46×", "2.0×"], ["0.6", "3", "1.67×", "2.5×"], ["0.7", "4", "1.98×", "3.3×"], ["0.8", "6", "2.47×", "5.0×"], ["0.9", "10", "3.43×", "10.0×"],
    ]);
    await inSection(page, "pays", "Acceptance rate α").first().fill("0.9");
    await inSection(page, "pays", "Draft length k").fill("8");
    await inSection(page, "pays", "Draft step, in target passes: c").fill("0.05");
    assert.match((await texts(page, "#theory-stats"))[0], /6\.1258[^]*1\.40[^]*4\.38×[^]*10\.0/);
  }));

  test("4: rounds in milliseconds", () => onPage(async (page) => {
    const wanted = { fast: /5\.0 ms.*2\.00×, faster/, slow: /13\.3 ms.*0\.75×, slower/, two: /10\.0 ms.*0\.80×, slower/, four: /5\.0 ms.*1\.60×, faster/ };
    for (const [key, pattern] of Object.entries(wanted)) {
      await inSection(page, "pays", "Example").selectOption(key);
      assert.match(await page.locator("#balance").innerText(), pattern);
    }
    await inSection(page, "pays", "Reading the prompt, ms").fill("500");
    await inSection(page, "pays", "Tokens of the answer").fill("50");
    assert.match(await page.locator("#balance").innerText(), /whole request: 1\.20×/);
  }));

  test("4: measured costs, batches, and a gain that becomes a loss", () => onPage(async (page) => {
    await inSection(page, "pays", "Acceptance rate α").last().fill("0.9");
    await inSection(page, "pays", "Requests in the batch").fill("64");
    assert.match((await texts(page, "#measured-stats"))[0], /do not draft/);
    assert.match(await page.locator("#measured").innerText(), /a loss/);
    await inSection(page, "pays", "Draft step, in passes: c").fill("0.2");
    await inSection(page, "pays", "Curve").selectOption("1");
  }));

  test("4: your own cost files, and files that are none", () => onPage(async (page) => {
    const chooser = page.locator("#pays input[type=file]");
    const table = values.costs.table, plan = { settings: { model: "mine" }, costs: { live_ms: { 1: 10, 2: 11, 4: 12.5 } } };
    for (const good of [{ table }, plan, { passes: [{ rows: 1, context: 8, ms: 10 }, { rows: 5, context: 8, ms: 12 }] }]) {
      await chooser.setInputFiles(file("good.json", JSON.stringify(good)));
      await page.locator("#pays [role=status]", { hasText: "Read good.json" }).waitFor();
      assert.match((await texts(page, "#measured-stats"))[0], /10\.0 ms/);
      await chooser.setInputFiles([]);
    }
    for (const [bad, complaint] of [
      ["{", /not JSON/], ["[]", /no object/], ["{}", /passes, costs and table are all missing/], ['{"passes": []}', /field passes/],
      ['{"passes": [{"rows": 1, "context": 8, "ms": "x"}]}', /passes\[0\]\.ms is "x"/], ['{"costs": {}}', /costs\.live_ms/],
      ['{"costs": {"live_ms": {"1": -1}}}', /costs\.live_ms\[1\] is -1/], ['{"table": {"rows": [1, 2]}}', /table\.seconds/],
      ['{"table": {"rows": [1, 1], "seconds": [1, 2]}}', /twice/], ['{"table": {"rows": [1], "seconds": [1]}}', /at least 2/],
    ]) {
      await chooser.setInputFiles(file("bad.json", bad));
      await page.locator("#cost-error", { hasText: complaint }).waitFor({ timeout: 2000 });
    }
  }));

  test("5: results are those of results/, losses included", () => onPage(async (page) => {
    const { results } = values, text = await page.locator("#results").evaluate((section) => section.textContent);
    for (const { title, geomean_speedup: mean, categories } of results.speeds) {
      assert.ok(text.includes(`${title}: geometric mean ${mean.toFixed(2)}×`), title);
      for (const { speedup } of Object.values(categories)) assert.ok(text.includes(`${speedup.toFixed(2)}×`));
    }
    const losses = results.speeds.flatMap(({ categories }) => Object.values(categories)).filter(({ speedup, end_to_end_speedup: whole }) => [speedup, whole].some((value) => value < 1));
    if (losses.length) assert.ok((await page.locator("#results .loss").count()) > 0, "losses are marked");
    for (const { engines } of results.peers) {
      for (const { name, geomean_tok_s: rate } of engines) assert.ok(text.includes(name) && text.includes(rate.toFixed(1)), name);
    }
    assert.equal((await cells(page, "#controls-table")).length, 9);
    const shown = JSON.parse(readFileSync(new URL("../src/sooner/lab/page/data/results.json", import.meta.url)));
    agree(shown, results, "results");
  }));

  test("6: every question tells right from wrong and explains", () => onPage(async (page) => {
    const questions = page.locator(".question");
    assert.ok((await questions.count()) >= 10);
    for (let i = 0; i < (await questions.count()); i++) {
      const question = questions.nth(i), choices = question.getByRole("radio");
      assert.equal(await question.locator(".worked").isVisible(), false);
      const verdicts = [];
      for (let choice = 0; choice < (await choices.count()); choice++) {
        await choices.nth(choice).check();
        verdicts.push(await question.locator(".verdict").innerText());
      }
      assert.equal(verdicts.filter((text) => text === "Right.").length, 1, `question ${i + 1}`);
      assert.equal(await question.locator(".worked").isVisible(), true);
    }
  }));

  test("6: answers set the controls above", () => onPage(async (page) => {
    const press = async (number, choice) => {
      await page.locator(`#q${number}`).getByRole("radio").nth(choice).check();
      await page.locator(`#q${number}`).getByRole("button").click();
    };
    await press(3, 0);
    assert.deepEqual((await cells(page, "#position-table")).map((row) => row[3]), ["0.5000", "1.0000"]);
    await press(4, 1);
    assert.deepEqual((await cells(page, "#position-table"))[2].slice(1, 2), ["0.0000"]);
    assert.equal(await inSection(page, "position", "Temperature").inputValue(), "0.5");
    await page.locator("#q9").getByRole("radio").nth(1).check();
    await page.locator("#q9").getByRole("button").click();
    assert.match(await page.locator("#balance").innerText(), /0\.80×, slower/);
    await press(7, 0);
    assert.equal(await inSection(page, "round", "Recorded answer").inputValue(), "edit-greedy");
    assert.equal(await page.evaluate(() => document.activeElement.id), "round-title");
  }));

  test("the keyboard reaches everything, and the theme stays", () => onPage(async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    for (let i = 0; i < 6; i++) await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "6 Questions");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#theme").innerText(), "Theme: light");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
    await page.reload();
    assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
    await page.focus("#round-next");
    await page.keyboard.press("Enter");
    assert.match((await texts(page, "#round-view [role=status]"))[0], /verify/);
  }));

  const LOOKS = {
    light: { colorScheme: "light" },
    dark: { colorScheme: "dark" },
    phone: { viewport: { width: 390, height: 800 } },
  };

  for (const [look, options] of Object.entries(LOOKS)) {
    test(`accessible and whole: ${look}`, () => onPage(async (page) => {
      await page.click("#draw");
      await page.click("#run");
      await page.click("#round-next");
      await page.locator('#simulated[data-done="true"]').waitFor();
      const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(width <= 0, `${width} px wider than the screen`);
      await page.evaluate(AxeCore.source); // what the tests evaluate is not bound by the policy
      const { violations } = await page.evaluate(() => window.axe.run());
      const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
      assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).slice(0, 3).join(" | ")}`), []);
      mkdirSync(new URL("shots", import.meta.url), { recursive: true });
      for (const section of SECTIONS) {
        await page.locator(`#${section}`).screenshot({ path: new URL(`shots/${look}-${section}.png`, import.meta.url).pathname });
      }
    }, options));
  }
});
