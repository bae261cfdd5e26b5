// The page: take a file, let the reader choose a column, and show the report that the runtime writes.
import { startRuntime } from "./runtime.js";

const MAX_MEGABYTES = 20;
const element = (name) => document.getElementById(name);
let runtime = null; // started with the first file
let file = null;

function say(text, wrong = false) {
  element("said").textContent = text;
  element("said").classList.toggle("wrong", wrong);
}

async function take(given) {
  element("choose").hidden = element("report").hidden = element("save").hidden = true;
  if (!given) return;
  if (given.size > MAX_MEGABYTES * 1e6) {
    say(`${given.name} has ${Math.round(given.size / 1e6)} MB; a page can take ${MAX_MEGABYTES} MB. Use relvec fit in a shell.`, true);
    return;
  }
  try {
    file = { name: given.name, bytes: new Uint8Array(await given.arrayBuffer()) };
    runtime ??= await startRuntime(say);
    say(`Reading ${file.name} ...`);
    const columns = await runtime.columns(file);
    element("target").replaceChildren(...columns.map((name) => new Option(name, name)));
    element("target").value = columns.at(-1);
    element("choose").hidden = false;
    say(`${file.name}: ${columns.length} columns. Which one is to be predicted?`);
  } catch (error) {
    say(error.message, true);
  }
}

async function fit(event) {
  event.preventDefault();
  element("go").disabled = true;
  say("Fitting. This may take a minute ...");
  await new Promise((resolve) => setTimeout(resolve, 50)); // let the page show it
  try {
    const html = await runtime.report(file, element("target").value);
    element("report").srcdoc = html;
    element("report").hidden = false;
    URL.revokeObjectURL(element("save").href);
    element("save").href = URL.createObjectURL(new Blob([html], { type: "text/html" }));
    element("save").hidden = false;
    say("Done.");
  } catch (error) {
    say(error.message, true);
  } finally {
    element("go").disabled = false;
  }
}

const drop = element("drop");
for (const name of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") take(event.dataTransfer.files[0]);
  });
}
element("file").addEventListener("change", (event) => take(event.target.files[0]));
element("choose").addEventListener("submit", fit);
