// What the page of `veilset page` loads: `node bundle.mjs FOLDER` writes reader.js, all of this package in one file, and
// LICENSES.txt of the packages in it. Both are committed; a test says when they have to be made anew.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { build } from "esbuild";

const [folder] = process.argv.slice(2);
const { metafile } = await build({
  entryPoints: ["index.js"],
  bundle: true,
  format: "esm",
  outfile: join(folder, "reader.js"),
  banner: { js: "// Made of client/js by bundle.mjs; do not edit. The licenses of what it holds are in LICENSES.txt." },
  logLevel: "error",
  metafile: true,
  preserveSymlinks: true,
});
const packages = new Set(Object.keys(metafile.inputs).flatMap((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []));
const texts = [...packages].sort().map((name) => {
  const home = join("node_modules", name);
  const { version } = JSON.parse(readFileSync(join(home, "package.json"), "utf-8"));
  const license = readdirSync(home).find((file) => /^licen[sc]e/i.test(file));
  return `${name} ${version}\n\n${readFileSync(join(home, license), "utf-8").trim()}\n`;
});
writeFileSync(join(folder, "LICENSES.txt"), `reader.js holds these packages. The table of tr46 is made from data of Unicode, Inc. (https://www.unicode.org/license.txt).\n\n${texts.join("\n")}`);
