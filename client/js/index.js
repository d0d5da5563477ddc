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
 * @property {Uint8Array} [secret] the secret of a keyed set, 16 to 64 bytes
 * @property {string} [setName] refuse a release of another set
 * @property {number | bigint} [minSequence] refuse an older release, such as one from before the last that was seen
 */

const MAGIC = "7665696c73657401"; // "veilset" and the byte 1
const MANIFEST_START = 12;
const MAX_MANIFEST_BYTES = 6291456;

/**
 * Checks a release file whole and makes it ready to answer. Throws ReleaseRejected or InvalidInput.
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
  if (hex(bytes.subarray(0, 8)) !== MAGIC) throw new ReleaseRejected("file: is not a veilset release");
  const length = bytes.length < MANIFEST_START ? 0 : new DataView(bytes.buffer).getUint32(8, true);
  if (length < 1 || length > Math.min(MAX_MANIFEST_BYTES, bytes.length - MANIFEST_START)) {
    throw new ReleaseRejected("file: the length of its manifest is out of range, or the file is cut off");
  }
  const header = openManifest(bytes.subarray(MANIFEST_START, MANIFEST_START + length), trusted);
  const name = `release ${header.setName}/${header.sequence}`;
  if (setName !== undefined && header.setName !== setName) throw new ReleaseRejected(`${name}: is not of the set ${setName}`);
  if (header.sequence < BigInt(minSequence)) throw new ReleaseRejected(`${name}: is older than ${minSequence}`);
  const vector = bytes.subarray(MANIFEST_START + length);
  checkVector(header, vector, name);
  return new Release(header, vector, checkSecret(header, secret));
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
  const { encoding, chunkSha256 } = header;
  if (vector.length !== encoding.vectorBytes) {
    throw new ReleaseRejected(`${name}: the vector has ${vector.length} bytes instead of ${encoding.vectorBytes}`);
  }
  chunkSha256.forEach((expected, i) => {
    if (hex(sha256(vector.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES))) !== hex(expected)) {
      throw new ReleaseRejected(`${name}: chunk ${i} does not match its hash`);
    }
  });
  if (!encoding.isPadded(vector)) throw new ReleaseRejected(`${name}: padding bits are set`);
}

function checkSecret({ hashing: { scheme, keyCheck: expected } }, secret) {
  if (scheme !== "blake2b-1") {
    if (secret !== undefined) throw new InvalidInput(`secret: has to be absent, as the scheme ${scheme} takes none`);
    return undefined;
  }
  if (secret === undefined) throw new InvalidInput("secret: is needed, as this release was made with one");
  const own = keyCheck(secret);
  if (expected && own !== expected) {
    throw new InvalidInput(`secret: is not that of this release, whose check value is ${expected}; that of the one given is ${own}`);
  }
  return secret;
}

/** A checked release in memory; made by `openRelease`. */
export class Release {
  #normalize;
  #digest;
  #read;
  #law;
  #buffer = new Uint8Array(3 * MAX_ELEMENT_BYTES);

  /**
   * @param {import("./header.js").Header} header
   * @param {Uint8Array} vector
   * @param {Uint8Array} [secret]
   */
  constructor(header, vector, secret) {
    const { scheme, seed } = header.hashing;
    /** What the release says of itself. */
    this.header = header;
    this.#normalize = makeNormalizer(header.normalization);
    this.#digest =
      scheme === "mmh3-1"
        ? (bytes, length, digests, at) => murmur3(bytes, length, seed, digests, at)
        : keyedBlake2b(secret, seed);
    this.#read = header.encoding.reader(vector);
    this.#law = header.encoding.law(vector);
  }

  /** Whether the vector holds too much to show anything; then all scores are 0. */
  get saturated() {
    return this.#law.saturated;
  }

  /**
   * Whether an element is taken for a member: whether its score is above 0.
   *
   * @param {Element} element
   * @returns {boolean}
   */
  has(element) {
    return this.scores([element])[0] > 0;
  }

  /**
   * The same for many: 1 where an element is taken for a member, else 0.
   *
   * @param {Iterable<Element>} elements
   * @returns {Uint8Array}
   */
  hasMany(elements) {
    const { scores } = this.#law;
    const readings = this.readings(elements);
    const found = new Uint8Array(readings.length);
    for (let i = 0; i < found.length; i++) found[i] = scores[readings[i]] > 0 ? 1 : 0;
    return found;
  }

  /**
   * What each element reads: of bloom d·(k + 1) + t, for t ones at d distinct positions; of linear 1 for yes and 0 for no.
   *
   * @param {Iterable<Element>} elements
   * @returns {Uint16Array}
   */
  readings(elements) {
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
    return this.#read(digests);
  }

  /**
   * The log-likelihood ratio of "member" to "not a member" of each element, in nats.
   *
   * @param {Iterable<Element>} elements
   * @returns {Float64Array}
   */
  scores(elements) {
    const { scores } = this.#law;
    return Float64Array.from(this.readings(elements), (reading) => scores[reading]);
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
    const odds = Math.log(prior) - Math.log1p(-prior);
    return this.scores(elements).map((score) => 1 / (1 + Math.exp(-(score + odds))));
  }
}
