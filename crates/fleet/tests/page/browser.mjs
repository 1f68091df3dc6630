// Drives the page in headless Chromium by its debugging protocol: by keyboard alone, as a person would.
//
// node browser.mjs CHROMIUM URL [DIRECTORY FOR SCREENSHOTS]

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long anything on the page may take, in ms. */
const PATIENCE = 60_000;

const [chromium, base, screenshots] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "flowpeel-page-"));
const options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
const browser = spawn(chromium, [...options, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });

/** A connection to the browser: commands, and what it tells of itself. Messages end with a zero byte. */
function connected() {
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

async function main() {
  const { send, reports } = connected();
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await page(`${domain}.enable`);

  const value = async (expression) => {
    const { result, exceptionDetails } = await page("Runtime.evaluate", { expression, returnByValue: true });
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
    const code = { Enter: 13, Escape: 27, ArrowDown: 40, ArrowUp: 38, Tab: 9 }[key];
    await page("Input.dispatchKeyEvent", { type: "keyDown", key, text: text ?? (key.length === 1 ? key : key === "Enter" ? "\r" : undefined), windowsVirtualKeyCode: code });
    await page("Input.dispatchKeyEvent", { type: "keyUp", key, windowsVirtualKeyCode: code });
  };
  const type = async (text) => {
    for (const letter of text) await press(letter);
  };
  const picture = async (name, width, height, scheme) => {
    if (!screenshots) return;
    await page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    const { data } = await page("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(screenshots, `${name}-${width}-${scheme}.png`), Buffer.from(data, "base64"));
  };
  const pictures = async (name) => {
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      for (const scheme of ["light", "dark"]) await picture(name, width, height, scheme);
    }
    await page("Emulation.clearDeviceMetricsOverride");
  };
  const lines = "document.querySelectorAll('#rows tr').length";
  const found = "document.getElementById('found').textContent";

  await page("Page.navigate", { url: base });
  await until("connections", `${lines} > 20 && document.querySelector('.state.established') !== null`);
  const total = await value(found);
  await pictures("connections");
  await press("/");
  await until("the search has the focus", "document.activeElement.id === 'words'");
  await type("https");
  await until("the search has its result", `${found} !== ${JSON.stringify(total)} && ${found}.includes('filter: port 443') && ${lines} > 0`);
  await press("ArrowDown");
  await press("Enter");
  await until("a connection is open beside the table", "!document.getElementById('detail').hidden && document.querySelector('#detail dl') !== null");
  await pictures("connection");
  await press("Escape");
  await until("it is closed", "document.getElementById('detail').hidden && document.activeElement.matches('#rows tr')");
  await press("Escape");
  await until("the search is cleared", `document.getElementById('words').value === '' && ${found} === ${JSON.stringify(total)}`);
  await press("g");
  await until("groups by client", `${found}.includes('group') && document.getElementById('group').value === 'client' && ${lines} > 0`);
  await pictures("groups");
  await press("ArrowDown");
  await press("Enter");
  await until("a group is open", "document.getElementById('words').value.startsWith('client ') && document.getElementById('group').value === ''");
  await press("3");
  await until("the routers", "document.querySelectorAll('.health').length > 0");
  await pictures("routers");
  await press("2");
  await until("what one tap sees", `${found}.includes('one router only')`);
  await press("?");
  await until("the help", "document.getElementById('help').open");
  await press("Escape");
  await until("no help", "!document.getElementById('help').open");
  await page("Page.navigate", { url: `${base}?q=client+prot+443` });
  await until("the mark under the mistake", "document.getElementById('mark')?.textContent.includes('\\n         ^')");
  await page("Page.navigate", { url: `${base}?sort=-age` });
  await until("sorted by the address", `${lines} > 20 && document.querySelector('th[aria-sort=descending]') !== null`);
  await value("document.querySelector('#more').scrollIntoView()");
  await until("more lines as one scrolls", `${lines} > 100`);

  const markup = await value("document.querySelectorAll('main img, main script, main iframe, main a').length");
  const unnamed = await value(`[...document.querySelectorAll('button, input, select, a')].filter((one) =>
    !one.textContent.trim() && !one.getAttribute('aria-label') && !one.labels?.length).map((one) => one.outerHTML)`);
  const faults = reports.filter(({ method, params }) => method === "Runtime.exceptionThrown" || (method === "Log.entryAdded" && params.entry.level === "error"));
  const outside = reports.filter(({ method, params }) => method === "Network.requestWillBeSent" && !params.request.url.startsWith(base) && params.request.url !== "about:blank");
  return {
    markup,
    unnamed,
    outside: outside.map(({ params }) => params.request.url),
    // The filter that is none was refused, as it had to be.
    faults: faults.map(({ params }) => params.entry?.text ?? params.exceptionDetails.exception?.description ?? params.exceptionDetails.text).filter((text) => !text.includes("status of 400")),
  };
}

let result;
try {
  result = await main();
} catch (error) {
  result = { failed: String(error.stack ?? error) };
}
browser.kill();
await new Promise((ended) => (browser.exitCode === null && browser.signalCode === null ? browser.once("exit", ended) : ended()));
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(JSON.stringify(result));
process.exit(0);
