/** Element bytes → digest of 8 bytes (docs/format.md, section 3): two words of 32 bits, the low one first. */

import { blake2b } from "@noble/hashes/blake2.js";

import { InvalidInput } from "./errors.js";
import { high, low, multiply } from "./words.js";

const C1 = [0x114253d5, 0x87c37b91];
const C2 = [0x2745937f, 0x4cf5ad43];

/** ASCII text, filled up to 16 bytes with zeros. */
function personalization(text) {
  const bytes = new Uint8Array(16);
  bytes.set(new TextEncoder().encode(text));
  return bytes;
}

function word(bytes, at) {
  return bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
}

/** The word at `at` of what is left of the last block, filled up with zeros. */
function lastWord(bytes, at, length) {
  let found = 0;
  for (let i = Math.min(at + 4, length) - 1; i >= at; i--) found = (found << 8) | bytes[i];
  return found;
}

/** (k·first rotated left by r)·second, as both halves of a block are mixed; 0 < r < 64, r not 32. */
function mixBlock(k0, k1, first, second, r) {
  multiply(k0, k1, first[0], first[1]);
  rotate(low[0], high[0], r);
  multiply(low[0], high[0], second[0], second[1]);
}

function rotate(a0, a1, r) {
  if (r > 32) {
    low[0] = (a1 << (r - 32)) | (a0 >>> (64 - r));
    high[0] = (a0 << (r - 32)) | (a1 >>> (64 - r));
  } else {
    low[0] = (a0 << r) | (a1 >>> (32 - r));
    high[0] = (a1 << r) | (a0 >>> (32 - r));
  }
}

function add(a0, a1, b0, b1) {
  const sum = (a0 >>> 0) + (b0 >>> 0);
  low[0] = sum | 0;
  high[0] = (a1 + b1 + (sum > 0xffffffff ? 1 : 0)) | 0;
}

function finalMix(h0, h1) {
  multiply(h0 ^ (h1 >>> 1), h1, 0xed558ccd, 0xff51afd7);
  multiply(low[0] ^ (high[0] >>> 1), high[0], 0x1a85ec53, 0xc4ceb9fe);
  low[0] ^= high[0] >>> 1;
}

/**
 * The first half of MurmurHash3_x64_128 (A. Appleby, public domain) of the first `length` bytes.
 *
 * @param {Uint8Array} bytes
 * @param {number} length
 * @param {number} seed 32 bits
 * @param {Uint32Array} digests where the digest goes
 * @param {number} at index of its low word
 */
export function murmur3(bytes, length, seed, digests, at) {
  let a0 = seed | 0;
  let a1 = 0;
  let b0 = seed | 0;
  let b1 = 0;
  let start = 0;
  for (; start + 16 <= length; start += 16) {
    mixBlock(word(bytes, start), word(bytes, start + 4), C1, C2, 31);
    rotate(a0 ^ low[0], a1 ^ high[0], 27);
    add(low[0], high[0], b0, b1);
    multiply(low[0], high[0], 5, 0);
    add(low[0], high[0], 0x52dce729, 0);
    a0 = low[0];
    a1 = high[0];
    mixBlock(word(bytes, start + 8), word(bytes, start + 12), C2, C1, 33);
    rotate(b0 ^ low[0], b1 ^ high[0], 31);
    add(low[0], high[0], a0, a1);
    multiply(low[0], high[0], 5, 0);
    add(low[0], high[0], 0x38495ab5, 0);
    b0 = low[0];
    b1 = high[0];
  }
  if (length - start > 8) {
    mixBlock(lastWord(bytes, start + 8, length), lastWord(bytes, start + 12, length), C2, C1, 33);
    b0 ^= low[0];
    b1 ^= high[0];
  }
  if (length > start) {
    mixBlock(lastWord(bytes, start, length), lastWord(bytes, start + 4, length), C1, C2, 31);
    a0 ^= low[0];
    a1 ^= high[0];
  }
  add(a0 ^ length, a1, b0 ^ length, b1);
  a0 = low[0];
  a1 = high[0];
  add(a0, a1, b0 ^ length, b1);
  b0 = low[0];
  b1 = high[0];
  finalMix(a0, a1);
  a0 = low[0];
  a1 = high[0];
  finalMix(b0, b1);
  add(a0, a1, low[0], high[0]);
  digests[at] = low[0];
  digests[at + 1] = high[0];
}

/**
 * A function like `murmur3` without its seed: the keyed BLAKE2b of 64 bits.
 *
 * @param {Uint8Array} key 16 to 64 secret bytes
 * @param {number} seed 32 bits
 */
export function keyedBlake2b(key, seed) {
  const salt = new Uint8Array(16);
  new DataView(salt.buffer).setUint32(0, seed, true);
  const start = blake2b.create({ dkLen: 8, key, salt, personalization: personalization("veilset-1") });
  const state = start.clone();
  const found = new Uint8Array(start.blockLen);
  return (bytes, length, digests, at) => {
    start._cloneInto(state);
    state.update(bytes.subarray(0, length)).digestInto(found.subarray(0, 8));
    digests[at] = word(found, 0);
    digests[at + 1] = word(found, 4);
  };
}

/**
 * The public check value of a secret, in hexadecimal digits.
 *
 * @param {Uint8Array} key
 * @returns {string}
 */
export function keyCheck(key) {
  if (!(key instanceof Uint8Array) || key.length < 16 || key.length > 64) {
    throw new InvalidInput("secret: has to be 16 to 64 bytes in a Uint8Array");
  }
  const check = blake2b(new Uint8Array(0), { dkLen: 8, key, personalization: personalization("veilset-check-1") });
  return hex(check);
}

/** Bytes as lower-case hexadecimal digits. */
export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
