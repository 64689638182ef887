// The page, served by the package and opened in headless Chromium; what it must never do is checked after every test.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe } from "node:test";
import { chromium } from "playwright-core";

const ROOT = new URL("..", import.meta.url).pathname;
const PYTHON = process.env.SOONER_PYTHON ?? `${ROOT}.venv/bin/python`;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export const values = JSON.parse(readFileSync(new URL("values.json", import.meta.url)));
export const lab = {};

/** Tests that share one server and one browser. */
export function suite(name, tests) {
  describe(name, () => {
    before(start);
    after(stop);
    tests();
  });
}

async function start() {
  lab.server = spawn(PYTHON, ["-u", "-m", "sooner.cli.main", "lab"], {
    cwd: ROOT,
    env: { ...process.env, PYTHONPATH: `${ROOT}src` },
  });
  lab.url = await new Promise((resolve, reject) => {
    lab.server.stdout.on("data", (text) => {
      const url = /http:\S+/.exec(text);
      if (url) resolve(url[0]);
    });
    lab.server.stderr.on("data", (text) => reject(new Error(`${text}`)));
  });
  lab.browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] }); // CI runs as root
}

async function stop() {
  await lab.browser?.close();
  const ended = new Promise((resolve) => lab.server.on("exit", resolve));
  lab.server.kill("SIGINT");
  assert.equal(await ended, 0, "Ctrl-C ends the server cleanly");
}

/** Opens the page, hands it over, and asserts that nothing but `expected` was complained of, and nothing asked of others. */
export async function onPage(use, options = {}, expected = null) {
  const context = await lab.browser.newContext({
    viewport: { width: 1200, height: 900 },
    reducedMotion: "reduce",
    ...options,
  });
  const page = await context.newPage();
  const complaints = [],
    requests = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(lab.url);
  await page.locator("html[data-ready]").waitFor({ state: "attached" }); // waitForFunction needs eval, which the policy forbids
  try {
    await use(page);
    assert.deepEqual(
      complaints.filter((text) => !expected?.test(text)),
      [],
    );
    assert.deepEqual(
      requests.filter((url) => !url.startsWith(lab.url)),
      [],
    );
  } finally {
    await context.close();
  }
}

/** Numbers, lists and objects of them agree to 1e-12. */
export function agree(found, wanted, what) {
  if (wanted === null || typeof wanted !== "object") {
    const near = typeof wanted === "number" && Math.abs(found - wanted) <= 1e-12 * Math.max(1, Math.abs(wanted));
    assert.ok(found === wanted || near, `${what} is ${found}, the package says ${wanted}`);
    return;
  }
  for (const key of Object.keys(wanted)) agree(found?.[key], wanted[key], `${what}.${key}`);
}

export const texts = (page, selector) => page.locator(selector).allInnerTexts();

/** Cells of a table's body, row by row. */
export const cells = (page, selector) =>
  page
    .locator(`${selector} tbody tr`)
    .evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));

export const inSection = (page, section, label) => page.locator(`#${section}`).getByLabel(label, { exact: true });

/** What a file chooser is given. */
export const file = (name, text) => ({ name, mimeType: "application/json", buffer: Buffer.from(text) });
