// The page as a whole: size, policy, keyboard, looks and accessibility.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import AxeCore from "axe-core";
import { onPage, suite, texts } from "./support.js";

const SECTIONS = ["position", "round", "sequences", "pays", "results", "questions"];

suite("the page as a whole", () => {
  test("first paint within a second, under 1.5 MB, nothing from elsewhere", async () => {
    const paints = [];
    for (let i = 0; i < 3; i++) {
      // whoever else uses the machine makes a paint later, never earlier
      await onPage(async (page) => {
        paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
        const bytes = await page.evaluate(() =>
          performance.getEntriesByType("resource").reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
        );
        assert.ok(bytes > 50_000 && bytes < 1_500_000, `${bytes} bytes`);
      });
    }
    assert.ok(Math.min(...paints) < 1000, `first paints after ${paints} ms`);
  });

  test("the policy forbids scripts and requests of others", () =>
    onPage(
      async (page) => {
        const blocked = await page.evaluate(async () => {
          const caught = [];
          document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) =>
            caught.push(effectiveDirective),
          );
          const script = document.createElement("script");
          script.textContent = "window.intruder = true";
          document.body.append(script);
          await new Promise((resolve) => setTimeout(resolve, 100));
          return { caught: [...new Set(caught)], intruder: window.intruder }; // header and page say the same
        });
        assert.deepEqual(blocked, { caught: ["script-src-elem"], intruder: undefined });
      },
      {},
      /Content Security Policy/,
    ));

  test("the keyboard reaches everything, and the theme stays", () =>
    onPage(async (page) => {
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
    test(`accessible and whole: ${look}`, () =>
      onPage(async (page) => {
        await page.click("#draw");
        await page.click("#run");
        await page.click("#round-next");
        await page.locator('#simulated[data-done="true"]').waitFor();
        const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(width <= 0, `${width} px wider than the screen`);
        await page.evaluate(AxeCore.source); // what the tests evaluate is not bound by the policy
        const { violations } = await page.evaluate(() => window.axe.run());
        const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
        assert.deepEqual(
          serious.map(
            ({ id, nodes }) =>
              `${id}: ${nodes
                .map(({ html }) => html.slice(0, 120))
                .slice(0, 3)
                .join(" | ")}`,
          ),
          [],
        );
        mkdirSync(new URL("shots", import.meta.url), { recursive: true });
        for (const section of SECTIONS) {
          await page
            .locator(`#${section}`)
            .screenshot({ path: new URL(`shots/${look}-${section}.png`, import.meta.url).pathname });
        }
      }, options));
  }
});
