/**
 * A reader of veilset releases for browsers and Node. What is asked stays in memory: nothing is sent anywhere.
 *
 *     const release = openRelease(bytes, { publicKeys: ["03a107bf…"] });
 *     release.has("alice@example.com");
 */

import { sha256 } from "@noble/hashes/sha2.js";

import { InvalidInput, ReleaseRejected } from "./errors.js";
import { hex, keyCheck, keyedBlake2b, murmur3 } from "./hash.js";
import { CHUNK_BYTES, openManifest } from "./header.js";
import { MAX_ELEMENT_BYTES, makeNormalizer } from "./normalize.js";

export { InvalidInput, ReleaseRejected };

/** @typedef {string | Uint8Array} Element text, or bytes: as they are under the normalization none, else as UTF-8 */

/**
 * @typedef {object} Options
 * @property {(string | Uint8Array)[]} publicKeys Ed25519 keys that are trusted, raw or in hexadecimal digits. Take them from
 *   the owner of the set by another way than the release.
 * @property {Uint8Array | null} [secret] the secret of a keyed set, 16 to 64 bytes; null opens such a release without it: its
 *   header and its rates are there, and asking throws
 * @property {string} [setName] refuse a release of another set
 * @property {number | bigint} [minSequence] refuse an older release, such as one from before the last that was seen
 */

const MAGIC = "7665696c73657401"; // "veilset" and the byte 1
const MANIFEST_START = 12;
const MAX_MANIFEST_BYTES = 6291456;

/**
 * Checks a release file, with all releases of its generation, and makes it ready to answer. Throws ReleaseRejected or InvalidInput.
 *
 * @param {Uint8Array | ArrayBuffer} file its bytes, which are copied
 * @param {Options} options
 * @returns {Release}
 */
export function openRelease(file, options) {
  if (!(file instanceof Uint8Array || file instanceof ArrayBuffer)) {
    throw new InvalidInput("file: has to be a Uint8Array or an ArrayBuffer");
  }
  const { publicKeys, secret, setName, minSequence = 1 } = options ?? {};
  const trusted = checkKeys(publicKeys);
  const bytes = new Uint8Array(file instanceof ArrayBuffer ? file.slice(0) : file); // a copy, which the caller cannot change
  const parts = [];
  for (let at = 0; at < bytes.length || parts.length === 0; ) {
    parts.push(openPart(bytes.subarray(at), trusted));
    at += parts.at(-1).length;
  }
  const { header } = parts.at(-1);
  const name = `release ${header.setName}/${header.sequence}`;
  if (setName !== undefined && header.setName !== setName) throw new ReleaseRejected(`${name}: is not of the set ${setName}`);
  if (header.sequence < BigInt(minSequence)) throw new ReleaseRejected(`${name}: is older than ${minSequence}`);
  checkParts(parts, header, name);
  return new Release(parts, checkSecret(header, secret));
}

/** One release at the beginning of bytes: checked header, manifest, vector, and how many bytes it takes. */
function openPart(bytes, trusted) {
  if (hex(bytes.subarray(0, 8)) !== MAGIC) throw new ReleaseRejected("file: is not a veilset release");
  const length = bytes.length < MANIFEST_START ? 0 : new DataView(bytes.buffer, bytes.byteOffset).getUint32(8, true);
  if (length < 1 || length > Math.min(MAX_MANIFEST_BYTES, bytes.length - MANIFEST_START)) {
    throw new ReleaseRejected("file: the length of its manifest is out of range, or the file is cut off");
  }
  const start = MANIFEST_START + length;
  const manifest = bytes.subarray(MANIFEST_START, start);
  const header = openManifest(manifest, trusted);
  const vector = bytes.subarray(start, start + header.vectorBytes);
  checkVector(header, vector, `release ${header.setName}/${header.sequence}`);
  return { header, manifest, vector, length: start + header.vectorBytes };
}

const ALIKE = ["setName", "generation", "hashing", "normalization", "privacy", "plannedIncrements", "removalsEpsilon"];

/** The parts have to be the releases that the newest header names, the base first. */
function checkParts(parts, newest, name) {
  if (newest.earlier.length !== parts.length - 1) {
    throw new ReleaseRejected(`${name}: needs ${newest.earlier.length} earlier releases, and the file holds ${parts.length - 1}`);
  }
  const shown = (header) => JSON.stringify(ALIKE.map((field) => header[field]), (_, value) => (typeof value === "bigint" ? `${value}` : value));
  newest.earlier.forEach(({ sequence, manifestSha256 }, i) => {
    const { header, manifest } = parts[i];
    if (header.sequence !== sequence || hex(sha256(manifest)) !== hex(manifestSha256) || header.earlier.length !== i) {
      throw new ReleaseRejected(`${name}: release ${header.sequence} is not the earlier release ${sequence} that it names`);
    }
    if (shown(header) !== shown(newest)) {
      throw new ReleaseRejected(`${name}: release ${header.sequence} is of another generation`);
    }
  });
}

function checkKeys(publicKeys) {
  if (!Array.isArray(publicKeys) || publicKeys.length === 0) {
    throw new InvalidInput("publicKeys: has to name at least one trusted key; ask the owner of the set for it");
  }
  return publicKeys.map((key) => {
    const isText = typeof key === "string" && /^[0-9a-f]{64}$/i.test(key);
    const raw = isText ? Uint8Array.from(key.match(/../g), (digits) => parseInt(digits, 16)) : key;
    if (!(raw instanceof Uint8Array) || raw.length !== 32) {
      throw new InvalidInput("publicKeys: each has to be 32 bytes, or 64 hexadecimal digits");
    }
    return raw;
  });
}

function checkVector(header, vector, name) {
  const { encoding, tombstones, vectorBytes, chunkSha256 } = header;
  if (vector.length !== vectorBytes) {
    throw new ReleaseRejected(`${name}: the vector has ${vector.length} bytes instead of ${vectorBytes}`);
  }
  chunkSha256.forEach((expected, i) => {
    if (hex(sha256(vector.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES))) !== hex(expected)) {
      throw new ReleaseRejected(`${name}: chunk ${i} does not match its hash`);
    }
  });
  const padded = encoding.isPadded(vector.subarray(0, encoding.vectorBytes));
  if (!padded || (tombstones && !tombstones.isPadded(vector.subarray(encoding.vectorBytes)))) {
    throw new ReleaseRejected(`${name}: padding bits are set`);
  }
}

function checkSecret({ hashing: { scheme, keyCheck: expected } }, secret) {
  if (scheme !== "blake2b-1") {
    if (secret != null) throw new InvalidInput(`secret: has to be absent, as the scheme ${scheme} takes none`);
    return undefined;
  }
  if (secret === undefined) throw new InvalidInput("secret: is needed, as this release was made with one");
  if (secret === null) return null;
  const own = keyCheck(secret);
  if (expected && own !== expected) {
    throw new InvalidInput(`secret: is not that of this release, whose check value is ${expected}; that of the one given is ${own}`);
  }
  return secret;
}

/** A checked base release and its increments in memory; made by `openRelease`. */
export class Release {
  #normalize;
  #digest;
  #parts;
  #tombstones;
  #buffer = new Uint8Array(3 * MAX_ELEMENT_BYTES);

  /**
   * @param {{header: import("./header.js").Header, vector: Uint8Array}[]} parts the base first
   * @param {Uint8Array | null} [secret]
   */
  constructor(parts, secret) {
    const { header } = parts.at(-1);
    const { scheme, seed } = header.hashing;
    /** What the newest release says of itself. */
    this.header = header;
    this.#normalize = makeNormalizer(header.normalization);
    if (scheme === "mmh3-1") this.#digest = (bytes, length, digests, at) => murmur3(bytes, length, seed, digests, at);
    else if (secret !== null) this.#digest = keyedBlake2b(secret, seed);
    const capacity = parts.reduce((sum, part) => sum + part.header.capacity, 0);
    this.#parts = parts.map((part) => ({
      ...readVector(part.header.encoding, part.vector.subarray(0, part.header.encoding.vectorBytes)),
      weight: part.header.capacity / capacity,
    }));
    this.#tombstones = parts
      .filter((part) => part.header.tombstones)
      .map((part) => readVector(part.header.tombstones, part.vector.subarray(part.header.encoding.vectorBytes)));
    const silent = (vectors) => vectors.reduce((product, { law }) => product * (1 - law.falsePositiveRate), 1);
    const stays = silent(this.#tombstones);
    /** How often a member is answered yes, in [0, 1]: one of any release, in each with its share of the capacities. */
    this.truePositiveRate = this.#parts.reduce((sum, part) => {
      const others = this.#parts.filter((other) => other !== part);
      return sum + stays * part.weight * (1 - (1 - part.law.truePositiveRate) * silent(others));
    }, 0);
    /** How often an element that is not in the set is answered yes, in [0, 1]. */
    this.falsePositiveRate = stays * (1 - silent(this.#parts));
  }

  /** Whether all vectors hold too much to show anything; then all scores are 0. */
  get saturated() {
    return this.#parts.every((part) => part.law.saturated);
  }

  /** The increments, by their number in the generation, that hold too much and are left out of the answers; the base has 0. */
  get saturatedParts() {
    return this.#parts.flatMap((part, number) => (part.law.saturated ? [number] : []));
  }

  /**
   * Whether an element is taken for a member: whether any release says so, and no vector of removed elements does.
   *
   * @param {Element} element
   * @returns {boolean}
   */
  has(element) {
    return this.hasMany([element])[0] === 1;
  }

  /**
   * The same for many: 1 where an element is taken for a member, else 0.
   *
   * @param {Iterable<Element>} elements
   * @returns {Uint8Array}
   */
  hasMany(elements) {
    return this.#members(this.#digests(elements));
  }

  /**
   * `hasMany` and `scores`, for the time of one.
   *
   * @param {Iterable<Element>} elements
   * @returns {{members: Uint8Array, scores: Float64Array}}
   */
  answers(elements) {
    const digests = this.#digests(elements);
    return { members: this.#members(digests), scores: this.#scores(digests) };
  }

  #members(digests) {
    const found = new Uint8Array(digests.length / 2);
    const mark = ({ read, law }, value) => {
      const readings = read(digests);
      for (let i = 0; i < found.length; i++) if (law.scores[readings[i]] > 0) found[i] = value;
    };
    for (const part of this.#parts) mark(part, 1);
    for (const part of this.#tombstones) mark(part, 0);
    return found;
  }

  #digests(elements) {
    if (!this.#digest) throw new InvalidInput("secret: is needed to ask, and this release was opened without one");
    if (typeof elements === "string" || elements instanceof Uint8Array) {
      throw new InvalidInput("elements: has to be a list of elements, not one");
    }
    const list = Array.isArray(elements) ? elements : [...elements];
    const digests = new Uint32Array(2 * list.length);
    for (let i = 0; i < list.length; i++) {
      let length;
      try {
        length = this.#normalize(list[i], this.#buffer);
      } catch (error) {
        throw error instanceof InvalidInput ? new InvalidInput(`element ${i}: ${error.message}`) : error;
      }
      this.#digest(this.#buffer, length, digests, 2 * i);
    }
    return digests;
  }

  /**
   * The log-likelihood ratio of "member" to "not a member" of each element, in nats: ln Σ w·e^s over the releases, w their
   * shares of the capacities, less the largest score of a vector of removed elements where that is above 0.
   *
   * @param {Iterable<Element>} elements
   * @returns {Float64Array}
   */
  scores(elements) {
    return this.#scores(this.#digests(elements));
  }

  #scores(digests) {
    const scores = ({ read, law }) => Float64Array.from(read(digests), (reading) => law.scores[reading]);
    const each = this.#parts.map(scores);
    const removed = this.#tombstones.map(scores);
    if (each.length === 1) return each[0];
    return each[0].map((_, i) => {
      const largest = Math.max(...each.map((own) => own[i]));
      const sum = each.reduce((total, own, part) => total + this.#parts[part].weight * Math.exp(own[i] - largest), 0);
      return largest + Math.log(sum) - Math.max(0, ...removed.map((own) => own[i]));
    });
  }

  /**
   * The probability of each element to be a member.
   *
   * @param {Iterable<Element>} elements
   * @param {number} prior the probability before asking, in [0, 1]
   * @returns {Float64Array}
   */
  posteriors(elements, prior) {
    if (!(prior >= 0 && prior <= 1)) throw new InvalidInput("prior: has to be a probability in [0, 1]");
    return this.scores(elements).map((score) => posterior(score, prior));
  }
}

/**
 * The probability to be a member, from a score and the probability before asking, both as `Release` has them.
 *
 * @param {number} score
 * @param {number} prior
 * @returns {number}
 */
export function posterior(score, prior) {
  return 1 / (1 + Math.exp(-(score + Math.log(prior) - Math.log1p(-prior))));
}

function readVector(encoding, vector) {
  return { read: encoding.reader(vector), law: encoding.law(vector) };
}
