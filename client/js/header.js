/** The signed header of a release: its bytes → checked fields (docs/format.md, sections 7 and 8). */

import { ed25519 } from "@noble/curves/ed25519.js";

import { Bloom } from "./bloom.js";
import { ReleaseRejected } from "./errors.js";
import { hex } from "./hash.js";
import { Linear } from "./linear.js";

export const CHUNK_BYTES = 2 ** 20;
const MAX_SIGNATURES = 8;
const CONTEXT = new TextEncoder().encode("veilset-release-v1\0");
const LARGEST = (1n << 64n) - 1n;
const YEAR_10000_US = 253_402_300_800_000_000n;

const SCHEMES = [undefined, "mmh3-1", "blake2b-1"];
const PROFILES = [undefined, "none", "trim-casefold-1", "nfc-1", "email-1"];
const ADJACENCIES = [undefined, "add-remove", "replace-one"];
const CALIBRATIONS = [undefined, "w-quantile", "exact", "worst-case"];
const MECHANISMS = ["laplace", "logistic", "gaussian"];

/** The fields of one protobuf message. Methods take a field's name for errors, its number, and the range that is allowed. */
export class Fields {
  /**
   * @param {Uint8Array} bytes
   * @param {string} owner what errors begin with
   */
  constructor(bytes, owner) {
    this.owner = owner;
    /** @type {Map<number, (bigint | Uint8Array)[]>} */
    this.values = new Map();
    let at = 0;
    const take = (length) => {
      if (length > bytes.length - at) throw this.wrong("the message", "is cut off");
      at += length;
      return bytes.subarray(at - length, at);
    };
    const varint = () => {
      let value = 0n;
      for (let shift = 0n; shift < 70n; shift += 7n) {
        const [byte] = take(1);
        value |= BigInt(byte & 0x7f) << shift;
        if (byte < 0x80) {
          if (value > LARGEST) break;
          return value;
        }
      }
      throw this.wrong("the message", "holds a number of more than 64 bits");
    };
    while (at < bytes.length) {
      const tag = Number(varint());
      const kind = tag % 8;
      let value;
      if (kind === 0) value = varint();
      else if (kind === 1) value = take(8);
      else if (kind === 2) value = take(Number(varint()));
      else throw this.wrong("the message", `has wire type ${kind}, which the format does not use`);
      const number = Math.floor(tag / 8);
      this.values.set(number, [...(this.values.get(number) ?? []), { kind, value }]);
    }
  }

  wrong(field, what) {
    return new ReleaseRejected(`${this.owner}: ${field} ${what}`);
  }

  /** All values of a field that is bytes. */
  repeated(field, number) {
    return (this.values.get(number) ?? []).map((found) => {
      if (found.kind !== 2) throw this.wrong(field, "has another type");
      return found.value;
    });
  }

  has(number) {
    return this.values.has(number);
  }

  single(field, number, kind, absent) {
    const found = this.values.get(number) ?? [];
    if (found.length > 1) throw this.wrong(field, "is there more than once");
    if (found.length === 0) return absent;
    if (found[0].kind !== kind) throw this.wrong(field, "has another type");
    return found[0].value;
  }

  /** A whole number of 64 bits, as a BigInt. */
  integer(field, number, least = 0n, most = LARGEST) {
    const value = this.single(field, number, 0, 0n);
    if (value < least || value > most) throw this.wrong(field, `has to be a whole number in [${least}, ${most}], got ${value}`);
    return value;
  }

  /** A whole number that fits a JavaScript number. */
  number(field, number, least, most) {
    return Number(this.integer(field, number, BigInt(least), BigInt(most)));
  }

  /** A floating-point number; `least` itself only if `closed`. */
  float(field, number, least, most, closed) {
    const bytes = this.single(field, number, 1, new Uint8Array(8));
    const value = new DataView(bytes.buffer, bytes.byteOffset, 8).getFloat64(0, true);
    if (!(value <= most && (value > least || (closed && value === least)))) {
      throw this.wrong(field, `has to be a number in ${closed ? "[" : "("}${least}, ${most}], got ${value}`);
    }
    return value;
  }

  bytes(field, number) {
    return this.single(field, number, 2, new Uint8Array(0));
  }

  text(field, number, pattern, expected) {
    let value;
    try {
      value = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes(field, number));
    } catch (error) {
      if (error instanceof ReleaseRejected) throw error;
      throw this.wrong(field, "is not UTF-8");
    }
    if (!pattern.test(value)) throw this.wrong(field, `has to be ${expected}`);
    return value;
  }

  choice(field, number, choices) {
    const value = choices[this.integer(field, number)];
    if (value === undefined) throw this.wrong(field, `has to be one of ${choices.slice(1).join(", ")}`);
    return value;
  }

  /** A message within this one. */
  message(field, number) {
    return new Fields(this.bytes(field, number), `${this.owner}: ${field}`);
  }
}

/**
 * @typedef {object} Header
 * @property {string} setName
 * @property {bigint} sequence
 * @property {{scheme: string, seed: number, keyCheck: string}} hashing keyCheck: hexadecimal digits, or ""
 * @property {Bloom | Linear} encoding
 * @property {{epsilon: number, delta: number, adjacency: string, calibration: string, elementsPerUser: number,
 *   minSize: number}} privacy
 * @property {string} normalization name with version, such as "email-1"
 * @property {bigint} createdAtUs microseconds since 1970-01-01 UTC
 * @property {Uint8Array[]} chunkSha256
 * @property {number} capacity
 * @property {{value: bigint, mechanism: string, scale: number, sensitivity: number, epsilon: number, delta: number} |
 *   null} count
 * @property {bigint} totalNanoEpsilon
 * @property {string} totalDelta
 * @property {boolean} sharedSeed
 * @property {bigint} limitNanoEpsilon
 * @property {string} limitDelta
 * @property {bigint} generation sequence of the base release
 * @property {{sequence: bigint, manifestSha256: Uint8Array}[]} earlier the releases of the generation before this one
 * @property {number} plannedIncrements
 * @property {Bloom | Linear | null} tombstones how the vector of removed elements was made
 * @property {number} removalsEpsilon
 * @property {number} vectorBytes length of both vectors
 */

/**
 * The header of a manifest that one of the trusted keys signed. Throws ReleaseRejected.
 *
 * @param {Uint8Array} manifest
 * @param {Uint8Array[]} publicKeys raw, 32 bytes each
 * @returns {Header}
 */
export function openManifest(manifest, publicKeys) {
  const signed = new Fields(manifest, "manifest");
  const encoded = signed.bytes("header", 1);
  const signatures = signed.repeated("signatures", 2);
  if (signatures.length > MAX_SIGNATURES) throw signed.wrong("signatures", `are more than ${MAX_SIGNATURES}`);
  const message = new Uint8Array([...CONTEXT, ...encoded]);
  if (!signatures.some((signature) => isValid(new Fields(signature, "signature"), message, publicKeys))) {
    throw new ReleaseRejected("manifest: there is no valid signature by a trusted key");
  }
  return readHeader(new Fields(encoded, "release header"));
}

function isValid(signature, message, publicKeys) {
  const proof = signature.bytes("signature", 2);
  const named = hex(signature.bytes("public_key", 3));
  const key = publicKeys.find((trusted) => hex(trusted) === named);
  if (!key || proof.length !== 64) return false;
  try {
    return ed25519.verify(proof, message, key, { zip215: false });
  } catch {
    return false; // no point of the curve
  }
}

/** @param {Fields} fields */
function readHeader(fields) {
  const version = fields.integer("format_version", 1);
  if (version !== 1n) throw fields.wrong("format_version", `is ${version}; this reader knows 1`);
  const hashing = fields.message("hashing", 4);
  const privacy = fields.message("privacy", 6);
  const header = {
    setName: fields.text("set_name", 2, /^[a-z0-9][a-z0-9._-]{0,62}$/, "1 to 63 characters of a to z, 0 to 9, and ._-"),
    sequence: fields.integer("sequence", 3, 1n),
    hashing: {
      scheme: hashing.choice("scheme", 1, SCHEMES),
      seed: hashing.number("seed", 2, 0, 2 ** 32 - 1),
      keyCheck: hex(hashing.bytes("key_check", 3)),
    },
    encoding: readEncoding(fields.message("encoding", 5)),
    privacy: {
      epsilon: privacy.float("epsilon", 1, 0, 64, false),
      delta: privacy.float("delta", 2, 0, 0.1, true),
      adjacency: privacy.choice("adjacency", 3, ADJACENCIES),
      calibration: privacy.choice("calibration", 4, CALIBRATIONS),
      elementsPerUser: privacy.number("elements_per_user", 5, 1, 1000),
      minSize: privacy.number("min_size", 6, 1, 1e12),
    },
    normalization: fields.choice("normalization", 7, PROFILES),
    createdAtUs: fields.integer("created_at_us", 8, 0n, YEAR_10000_US - 1n),
    chunkSha256: fields.repeated("chunk_sha256", 10),
    capacity: fields.number("capacity", 12, 1, 1e12),
    count: fields.has(13) ? readCount(fields.message("count", 13)) : null,
    totalNanoEpsilon: fields.integer("total_nano_epsilon", 14),
    totalDelta: fields.text("total_delta", 15, DELTA, "an exact decimal number"),
    sharedSeed: fields.integer("shared_seed", 16) !== 0n,
    limitNanoEpsilon: fields.integer("limit_nano_epsilon", 17),
    limitDelta: fields.text("limit_delta", 18, DELTA, "an exact decimal number"),
    generation: fields.integer("generation", 20, 1n),
    earlier: fields.repeated("earlier", 21).map((bytes) => {
      const part = new Fields(bytes, "release header: earlier");
      return { sequence: part.integer("sequence", 1, 1n), manifestSha256: part.bytes("manifest_sha256", 2) };
    }),
    plannedIncrements: fields.number("planned_increments", 22, 0, 1000),
    tombstones: fields.has(23) ? readEncoding(fields.message("tombstones", 23)) : null,
    removalsEpsilon: fields.float("removals_epsilon", 24, 0, 64, true),
  };
  checkGeneration(header, fields);
  const { keyCheck, scheme } = header.hashing;
  if (keyCheck && (keyCheck.length !== 16 || scheme !== "blake2b-1")) {
    throw hashing.wrong("key_check", "has to be 8 bytes, and absent with an unkeyed scheme");
  }
  if (header.count && header.count.sensitivity !== header.privacy.elementsPerUser) {
    throw fields.wrong("count", "has a sensitivity that is not elements_per_user");
  }
  if (header.limitNanoEpsilon < header.totalNanoEpsilon) {
    throw fields.wrong("limit_nano_epsilon", "has to be at least total_nano_epsilon");
  }
  if (isBelow(header.limitDelta, header.totalDelta)) throw fields.wrong("limit_delta", "has to be at least total_delta");
  const vectorBytes = header.encoding.vectorBytes + (header.tombstones?.vectorBytes ?? 0);
  header.vectorBytes = vectorBytes;
  fields.number("chunk_bytes", 9, CHUNK_BYTES, CHUNK_BYTES);
  fields.number("vector_bytes", 11, vectorBytes, vectorBytes);
  const chunks = Math.ceil(vectorBytes / CHUNK_BYTES);
  if (header.chunkSha256.length !== chunks || header.chunkSha256.some((hash) => hash.length !== 32)) {
    throw fields.wrong("chunk_sha256", `has to be ${chunks} hashes of 32 bytes`);
  }
  return header;
}

function checkGeneration(header, fields) {
  const { earlier, generation, plannedIncrements, privacy, removalsEpsilon, sequence, tombstones } = header;
  const sequences = [...earlier.map((part) => part.sequence), sequence];
  if (generation !== sequences[0]) throw fields.wrong("generation", "has to be the sequence of the base release");
  if (sequences.some((next, i) => i > 0 && next <= sequences[i - 1]) || earlier.some((part) => part.manifestSha256.length !== 32)) {
    throw fields.wrong("earlier", "has to name the earlier releases in order, each by a hash of 32 bytes");
  }
  if (earlier.length > plannedIncrements || (plannedIncrements > 0 && privacy.delta > 0)) {
    throw fields.wrong("planned_increments", "has to be at least the number of increments, and 0 where delta is not 0");
  }
  if ((tombstones !== null) !== (earlier.length > 0 && removalsEpsilon > 0)) {
    throw fields.wrong("tombstones", "has to be there in increments of a generation with removals_epsilon, and in no other release");
  }
}

function readEncoding(fields) {
  const families = [1, 2, 15].filter((number) => fields.has(number));
  if (families.length === 1 && families[0] === 1) return new Bloom(fields.message("bloom", 1));
  if (families.length === 1 && families[0] === 2) return new Linear(fields.message("linear", 2));
  throw new ReleaseRejected(`${fields.owner} has to be one that this reader knows: bloom or linear`);
}

function readCount(fields) {
  const mechanism = fields.text("mechanism", 2, /^[a-z]+$/, `one of ${MECHANISMS.join(", ")}`);
  if (!MECHANISMS.includes(mechanism)) throw fields.wrong("mechanism", `has to be one of ${MECHANISMS.join(", ")}`);
  return {
    value: BigInt.asIntN(64, fields.integer("value", 1)),
    mechanism,
    scale: fields.float("scale", 3, 0, 1e18, false),
    sensitivity: fields.number("sensitivity", 4, 1, 1000),
    epsilon: fields.float("epsilon", 5, 0, 64, false),
    delta: fields.float("delta", 6, 0, 0.1, true),
  };
}

const DELTA = /^(0|[1-9]\d{0,1200})(\.\d{1,1200})?(e-[1-9]\d{0,3})?$/;

/** Whether one decimal text names a smaller number than another, exactly. */
function isBelow(one, other) {
  const [a, b] = [one, other].map((text) => {
    const [digits, exponent = "0"] = text.split("e");
    const [whole, behind = ""] = digits.split(".");
    return { value: BigInt(whole + behind), decimals: behind.length - Number(exponent) };
  });
  return a.value * 10n ** BigInt(b.decimals) < b.value * 10n ** BigInt(a.decimals);
}
