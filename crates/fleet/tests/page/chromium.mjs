// Headless Chromium, driven by its debugging protocol: by keyboard alone, as a person would.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long anything on the page may take, in ms. */
const PATIENCE = 60_000;

/** A connection to the browser: commands, and what it tells of itself. Messages end with a zero byte. */
function connected(browser) {
  const [, , , commands, answers] = browser.stdio;
  const waiting = new Map();
  const reports = [];
  let rest = "";
  answers.setEncoding("utf8").on("data", (text) => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) {
      if (message.id === undefined) reports.push(message);
      else waiting.get(message.id)(message);
    }
  });
  let last = 0;
  const send = (method, params = {}, sessionId = undefined) =>
    new Promise((answered, failed) => {
      const id = ++last;
      waiting.set(id, (message) => (message.error ? failed(new Error(`${method}: ${message.error.message}`)) : answered(message.result)));
      commands.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  return { send, reports };
}

/** What a person can do with a page, and see of it. Screenshots go into a directory, if there is one. */
async function opened(browser, screenshots) {
  const { send, reports } = connected(browser);
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await page(`${domain}.enable`);

  const value = async (expression) => {
    const { result, exceptionDetails } = await page("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`);
    return result.value;
  };
  const until = async (what, expression) => {
    for (const began = Date.now(); Date.now() - began < PATIENCE; ) {
      if (await value(expression)) return;
      await new Promise((done) => setTimeout(done, 20));
    }
    throw new Error(`not within ${PATIENCE} ms: ${what}; the page shows: ${await value("document.body.innerText.slice(0, 2000)")}`);
  };
  const press = async (key, text = undefined) => {
    const code = { Enter: 13, Escape: 27, ArrowDown: 40, ArrowUp: 38, ArrowLeft: 37, End: 35, Tab: 9 }[key];
    await page("Input.dispatchKeyEvent", { type: "keyDown", key, text: text ?? (key.length === 1 ? key : key === "Enter" ? "\r" : undefined), windowsVirtualKeyCode: code });
    await page("Input.dispatchKeyEvent", { type: "keyUp", key, windowsVirtualKeyCode: code });
  };
  const type = async (text) => {
    for (const letter of text) await press(letter);
  };
  /** Shows the page at this size, which it must not exceed, and takes a screenshot if there is a place for it. */
  const picture = async (name, width, height, scheme) => {
    await page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    // Charts are drawn anew a frame after the page has another width.
    await until(`${name} fits ${width} pixels`, `document.documentElement.scrollWidth <= ${width}`);
    if (!screenshots) return;
    const { data } = await page("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(screenshots, `${name}-${width}-${scheme}.png`), Buffer.from(data, "base64"));
  };
  const faultsOf = () => reports.filter(({ method, params }) => method === "Runtime.exceptionThrown" || (method === "Log.entryAdded" && params.entry.level === "error"));
  const textOf = ({ params }) => params.entry?.text ?? params.exceptionDetails.exception?.description ?? params.exceptionDetails.text;
  return { page, value, until, press, type, picture, reports, faultsOf, textOf };
}

/** Prints what `use` finds on a page as JSON, or why it failed, and ends with the browser. */
export async function run(chromium, screenshots, use) {
  const profile = mkdtempSync(join(tmpdir(), "flowpeel-page-"));
  const options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--ignore-certificate-errors", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
  const browser = spawn(chromium, [...options, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  let result;
  try {
    result = await use(await opened(browser, screenshots));
  } catch (error) {
    result = { failed: String(error.stack ?? error) };
  }
  browser.kill();
  await new Promise((ended) => (browser.exitCode === null && browser.signalCode === null ? browser.once("exit", ended) : ended()));
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  console.log(JSON.stringify(result));
  process.exit(result.failed ? 1 : 0);
}
