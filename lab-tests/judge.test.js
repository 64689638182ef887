// Sections 4 to 6: every interaction, in headless Chromium.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { agree, cells, file, inSection, onPage, suite, texts, values } from "./support.js";

suite("sections 4 to 6", () => {
  test("4: the published tables, digit by digit", () =>
    onPage(async (page) => {
      assert.deepEqual(
        (await cells(page, "#tokens-table")).filter((_, i) => i % 2 === 0).map((row) => row.slice(1, 4)),
        [
          ["1.5000", "1.9375", "1.9961"],
          ["1.7000", "2.7731", "3.1988"],
          ["1.9000", "4.0951", "6.1258"],
        ],
      );
      assert.deepEqual(await cells(page, "#best-table"), [
        ["0.5", "2", "1.46×", "2.0×"],
        ["0.6", "3", "1.67×", "2.5×"],
        ["0.7", "4", "1.98×", "3.3×"],
        ["0.8", "6", "2.47×", "5.0×"],
        ["0.9", "10", "3.43×", "10.0×"],
      ]);
      await inSection(page, "pays", "Acceptance rate α").first().fill("0.9");
      await inSection(page, "pays", "Draft length k").fill("8");
      await inSection(page, "pays", "Draft step, in target passes: c").fill("0.05");
      assert.match((await texts(page, "#theory-stats"))[0], /6\.1258[^]*1\.40[^]*4\.38×[^]*10\.0/);
    }));

  test("4: rounds in milliseconds", () =>
    onPage(async (page) => {
      const wanted = {
        fast: /5\.0 ms.*2\.00×, faster/,
        slow: /13\.3 ms.*0\.75×, slower/,
        two: /10\.0 ms.*0\.80×, slower/,
        four: /5\.0 ms.*1\.60×, faster/,
      };
      for (const [key, pattern] of Object.entries(wanted)) {
        await inSection(page, "pays", "Example").selectOption(key);
        assert.match(await page.locator("#balance").innerText(), pattern);
      }
      await inSection(page, "pays", "Reading the prompt, ms").fill("500");
      await inSection(page, "pays", "Tokens of the answer").fill("50");
      assert.match(await page.locator("#balance").innerText(), /whole request: 1\.20×/);
    }));

  test("4: measured costs, batches, and a gain that becomes a loss", () =>
    onPage(async (page) => {
      await inSection(page, "pays", "Acceptance rate α").last().fill("0.9");
      await inSection(page, "pays", "Requests in the batch").fill("64");
      assert.match((await texts(page, "#measured-stats"))[0], /do not draft/);
      assert.match(await page.locator("#measured").innerText(), /a loss/);
      await inSection(page, "pays", "Draft step, in passes: c").fill("0.2");
      await inSection(page, "pays", "Curve").selectOption("1");
    }));

  test("4: your own cost files, and files that are none", () =>
    onPage(async (page) => {
      const chooser = page.locator("#pays input[type=file]");
      const table = values.costs.table,
        plan = { settings: { model: "mine" }, costs: { live_ms: { 1: 10, 2: 11, 4: 12.5 } } };
      for (const good of [
        { table },
        plan,
        {
          passes: [
            { rows: 1, context: 8, ms: 10 },
            { rows: 5, context: 8, ms: 12 },
          ],
        },
      ]) {
        await chooser.setInputFiles(file("good.json", JSON.stringify(good)));
        await page.locator("#pays [role=status]", { hasText: "Read good.json" }).waitFor();
        assert.match((await texts(page, "#measured-stats"))[0], /10\.0 ms/);
        await chooser.setInputFiles([]);
      }
      for (const [bad, complaint] of [
        ["{", /not JSON/],
        ["[]", /no object/],
        ["{}", /passes, costs and table are all missing/],
        ['{"passes": []}', /field passes/],
        ['{"passes": [{"rows": 1, "context": 8, "ms": "x"}]}', /passes\[0\]\.ms is "x"/],
        ['{"costs": {}}', /costs\.live_ms/],
        ['{"costs": {"live_ms": {"1": -1}}}', /costs\.live_ms\[1\] is -1/],
        ['{"table": {"rows": [1, 2]}}', /table\.seconds/],
        ['{"table": {"rows": [1, 1], "seconds": [1, 2]}}', /twice/],
        ['{"table": {"rows": [1], "seconds": [1]}}', /at least 2/],
      ]) {
        await chooser.setInputFiles(file("bad.json", bad));
        await page.locator("#cost-error", { hasText: complaint }).waitFor({ timeout: 2000 });
      }
    }));

  test("5: results are those of results/, losses included", () =>
    onPage(async (page) => {
      const { results } = values,
        text = await page.locator("#results").evaluate((section) => section.textContent);
      for (const { title, geomean_speedup: mean, categories } of results.speeds) {
        assert.ok(text.includes(`${title}: geometric mean ${mean.toFixed(2)}×`), title);
        for (const { speedup } of Object.values(categories)) assert.ok(text.includes(`${speedup.toFixed(2)}×`));
      }
      const losses = results.speeds
        .flatMap(({ categories }) => Object.values(categories))
        .filter(({ speedup, end_to_end_speedup: whole }) => [speedup, whole].some((value) => value < 1));
      if (losses.length) assert.ok((await page.locator("#results .loss").count()) > 0, "losses are marked");
      for (const { engines } of results.peers) {
        for (const { name, geomean_tok_s: rate } of engines)
          assert.ok(text.includes(name) && text.includes(rate.toFixed(1)), name);
      }
      assert.ok(results.controls.length >= 9);
      assert.equal((await cells(page, "#controls-table")).length, results.controls.length);
      const shown = JSON.parse(readFileSync(new URL("../src/sooner/lab/page/data/results.json", import.meta.url)));
      agree(shown, results, "results");
    }));

  test("6: every question tells right from wrong and explains", () =>
    onPage(async (page) => {
      const questions = page.locator(".question");
      assert.ok((await questions.count()) >= 10);
      for (let i = 0; i < (await questions.count()); i++) {
        const question = questions.nth(i),
          choices = question.getByRole("radio");
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

  test("6: answers set the controls above", () =>
    onPage(async (page) => {
      const press = async (number, choice) => {
        await page.locator(`#q${number}`).getByRole("radio").nth(choice).check();
        await page.locator(`#q${number}`).getByRole("button").click();
      };
      await press(3, 0);
      assert.deepEqual(
        (await cells(page, "#position-table")).map((row) => row[3]),
        ["0.5000", "1.0000"],
      );
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
});
