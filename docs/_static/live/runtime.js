// Python in the page: Pyodide in the folder pyodide/ beside this file, and the wheel that wheel.json names.
const MISSING =
  "This copy of the documentation has no Python for browsers; the published one has. In a shell: relvec fit, then relvec report.";

const PROGRAM = `
import contextlib, io, json
from relvec.app import cli, tables

def run(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = cli.main(list(arguments))
    if code:
        raise ValueError(said.getvalue().strip().removeprefix("relvec: "))

def columns(name):
    return json.dumps(tables.read_table(name).names)

def report(name, target):
    run("fit", name, "--target", target, "--holdout", "0", "-o", "model.relvec", "--json")
    run("report", "model.relvec", name, "--cv", "3", "-o", "report.html")
    with open("report.html", encoding="utf-8") as page:
        return page.read()
`;

async function load(say) {
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const { wheel } = await (await fetch("wheel.json")).json();
  say("Starting Python. The first time this loads some 40 MB ...");
  const python = await loadPyodide({ indexURL: new URL("pyodide/", location.href).href });
  await python.loadPackage(["numpy", "scipy", "scikit-learn", "matplotlib", "pandas", "pyarrow", "openpyxl"]);
  await python.loadPackage(new URL(wheel, location.href).href);
  python.runPython(PROGRAM);
  return python;
}

export async function startRuntime(say) {
  const python = await load(say).catch(() => {
    throw new Error(MISSING);
  });
  const call = (name, file, ...rest) => {
    const path = file.name.replace(/[^\w.-]/g, "_");
    python.FS.writeFile(path, file.bytes);
    try {
      return python.globals.get(name)(path, ...rest);
    } catch (error) {
      throw new Error(String(error.message).trim().split("\n").at(-1).replace(/^\w*Error: /, ""));
    }
  };
  return {
    columns: async (file) => JSON.parse(call("columns", file)),
    report: async (file, target) => call("report", file, target),
  };
}
