// The page's own mathematics against the package's values, to 1e-12, and its draws against the package's draws, exactly.

import assert from "node:assert/strict";
import { test } from "node:test";
import { agree, onPage, suite, values } from "./support.js";

suite("the mathematics of the page", () => {
  test("random numbers are the package's, to the last bit", () =>
    onPage(async (page) => {
      const found = await page.evaluate(async (noise) => {
        const { uniform } = await import("./math/random.js");
        return noise.map(([seed, purpose, lane]) => [0, 1, 2].map((draw) => uniform(seed, draw, purpose, lane)));
      }, values.noise);
      assert.deepEqual(
        found,
        values.noise.map((entry) => entry.slice(3)),
      );
    }));

  test("one position: road, rule, wrong rules, coupling and draws", () =>
    onPage(async (page) => {
      const found = await page.evaluate(async ({ positions, draws, seed }) => {
        const m = await import("./math/position.js"),
          w = await import("./math/wrong.js");
        const listed = (output) => output.map((value) => (Number.isNaN(value) ? null : value));
        return positions.map(({ weights: [p, q], road }) => {
          const found = w.caseOf(p, q, road),
            { here } = found;
          const counts = p.map(() => 0),
            coupled = p.map(() => 0);
          return {
            ...here,
            agreement: Object.values(m.agreement(here)),
            wrong: Object.fromEntries(w.WRONG_RULES.map((rule) => [rule.key, listed(rule.output(found))])),
            drawn: { accepted: m.draw(here, seed, 0, draws, counts), counts },
            coupled: { accepted: m.drawCoupled(here, seed, 0, draws, coupled), counts: coupled },
          };
        });
      }, values);
      values.positions.forEach((wanted, i) => {
        const { weights, road, ...rest } = wanted;
        agree(found[i], rest, `position ${i}, ${JSON.stringify({ weights, road })}`);
      });
    }));

  test("formulas", () =>
    onPage(async (page) => {
      const found = await page.evaluate(async ({ grid, ceilings, best, balance }) => {
        const f = await import("./math/formulas.js");
        return {
          grid: grid.map(([a, k, c, v]) => [a, k, c, v, f.expectedTokens(a, k), f.speedup(a, k, c, v)]),
          ceilings: ceilings.map(([a]) => [a, f.ceiling(a)]),
          best: best.map(([a, c]) => [a, c, f.bestLength(a, c)]),
          balance: balance.map((entry) => [...entry.slice(0, -3), ...Object.values(f.balance(...entry.slice(0, -3)))]),
        };
      }, values.formulas);
      agree(found, values.formulas, "formulas");
    }));

  test("whole sequences", () =>
    onPage(async (page) => {
      const found = await page.evaluate(async (chains) => {
        const c = await import("./math/chain.js");
        return chains.map(({ P, Q, k, length }) => {
          const pair = c.makePair(P, Q);
          return {
            acceptance: pair.acceptance,
            mean: c.meanAcceptance(pair),
            round: c.tokensARound(pair, k),
            frequencies: c.frequencies(pair, length),
            shortfall: Object.values(c.shortfall(pair, k, length)),
          };
        });
      }, values.chains);
      values.chains.forEach(({ P, Q, k, length, ...wanted }, i) => agree(found[i], wanted, `chain ${i}`));
    }));

  test("the cost of a pass between and beyond measured rows", () =>
    onPage(async (page) => {
      const found = await page.evaluate(async ({ table, asked }) => {
        const { passMs, readCosts } = await import("./math/costs.js");
        const {
          curves: [curve],
        } = readCosts(JSON.stringify({ table }));
        return asked.map((rows) => passMs(curve, rows));
      }, values.costs);
      agree(found, values.costs.ms, "pass");
    }));
});
