// Runs beside the reader's files: a JSON list of [name, arguments] comes by standard input, a list of results goes out.

import { readFileSync } from "node:fs";

import { positions } from "./bloom.js";
import { hex, keyCheck, keyedBlake2b, murmur3 } from "./hash.js";
import { equation } from "./linear.js";
import { makeNormalizer } from "./normalize.js";
import { openRelease } from "veilset";

const bytes = (digits) => new Uint8Array(Buffer.from(digits, "hex"));
const words = (number) => [Number(number & 0xffffffffn), Number(number >> 32n)];
const refusal = (error) => `${error.name}: ${error.message}`;

function attempt(work) {
  try {
    return work();
  } catch (error) {
    return refusal(error);
  }
}

function options({ publicKeys, secret, ...others }) {
  return { publicKeys, secret: secret ? bytes(secret) : secret === null ? null : undefined, ...others };
}

const CALLS = {
  digest({ scheme, seed, key, element }) {
    const data = bytes(element);
    const found = new Uint32Array(2);
    if (scheme === "mmh3-1") murmur3(data, data.length, seed, found, 0);
    else keyedBlake2b(bytes(key), seed)(data, data.length, found, 0);
    return hex(new Uint8Array(found.buffer));
  },
  keyCheck: ({ key }) => keyCheck(bytes(key)),
  positions({ digest, bits, hashes }) {
    const found = new Float64Array(hashes);
    positions(bits, hashes, ...words(Buffer.from(digest, "hex").readBigUInt64LE()), found);
    return [...found];
  },
  row({ columns, band, digest }) {
    const row = new Int32Array(4);
    const first = equation(columns, band, ...words(BigInt(`0x${digest}`)), row);
    const coefficients = row.reduceRight((sum, word) => (sum << 32n) | BigInt(word >>> 0), 0n);
    return [first, coefficients.toString(16)];
  },
  normalize({ profile, texts }) {
    const buffer = new Uint8Array(3 * 4096);
    const normalize = makeNormalizer(profile);
    return texts.map((text) => {
      try {
        return hex(buffer.subarray(0, normalize(text, buffer)));
      } catch (error) {
        return error.name === "InvalidInput" ? null : refusal(error);
      }
    });
  },
  assigned: ({ codes }) => codes.map((code) => /\p{Assigned}/u.test(String.fromCodePoint(code))),
  ask({ path, texts, prior, ...given }) {
    try {
      const release = openRelease(readFileSync(path), options(given));
      return {
        setName: release.header.setName,
        sequence: Number(release.header.sequence),
        limitDelta: release.header.limitDelta,
        saturated: release.saturated,
        saturatedParts: release.saturatedParts,
        members: [...release.hasMany(texts)],
        answers: Object.values(release.answers(texts.slice(0, 100))).map((values) => [...values]),
        rates: [release.truePositiveRate, release.falsePositiveRate],
        has: texts.slice(0, 100).map((text) => release.has(text)),
        scores: [...release.scores(texts)],
        posteriors: [...release.posteriors(texts, prior)],
      };
    } catch (error) {
      return refusal(error);
    }
  },
  // A release that is opened without its secret: what it says of itself, and what asking it says.
  look({ file, ...given }) {
    const release = openRelease(Buffer.from(file, "base64"), options({ ...given, secret: null }));
    return [release.header.setName, release.truePositiveRate, attempt(() => release.has("a"))];
  },
  open: ({ file, ...given }) => attempt(() => openRelease(Buffer.from(file, "base64"), options(given)) && "opened"),
  // Every byte changed in two ways; the places at which the file was opened all the same.
  damage({ path, ...given }) {
    const whole = readFileSync(path);
    openRelease(whole, options(given));
    const opened = [];
    for (let at = 0; at < whole.length; at++) {
      for (const change of [1, 254]) {
        const damaged = Uint8Array.from(whole);
        damaged[at] ^= change;
        const outcome = attempt(() => openRelease(damaged, options(given)) && "opened");
        if (!outcome.startsWith("ReleaseRejected: ")) opened.push([at, outcome]);
      }
    }
    return opened;
  },
  // Every beginning of a file, and one byte more.
  cut({ path, ...given }) {
    const longer = Buffer.concat([readFileSync(path), new Uint8Array(1)]);
    const lengths = [...longer.keys(), longer.length].filter((length) => length !== longer.length - 1);
    const outcomes = lengths.map((length) => attempt(() => openRelease(longer.subarray(0, length), options(given)) && "opened"));
    return outcomes.filter((outcome) => !outcome.startsWith("ReleaseRejected: "));
  },
};

const results = [];
for (const [name, given] of JSON.parse(readFileSync(0, "utf-8"))) results.push(CALLS[name](given));
process.stdout.write(JSON.stringify(results));
