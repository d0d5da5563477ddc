/**
 * Arithmetic modulo 2^64 in two words of 32 bits, since BigInt is too slow for every element.
 *
 * Functions that yield 64 bits leave them in `low[0]` and `high[0]`: typed arrays, which take any word without allocating.
 */

export const low = new Int32Array(1);
export const high = new Int32Array(1);

/** The upper 32 bits of a product of two unsigned words, as a signed word. */
export function multiplyHigh(a, b) {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const middle = (Math.imul(a1, b0) + (Math.imul(a0, b0) >>> 16)) | 0;
  const carried = ((middle & 0xffff) + Math.imul(a0, b1)) | 0;
  return (Math.imul(a1, b1) + (middle >>> 16) + (carried >>> 16)) | 0;
}

/** The product modulo 2^64. */
export function multiply(a0, a1, b0, b1) {
  low[0] = Math.imul(a0, b0);
  high[0] = (multiplyHigh(a0, b0) + Math.imul(a0, b1) + Math.imul(a1, b0)) | 0;
}

/** ⌊z·factor / 2^64⌋ for a whole number `factor` up to 2^40, as a number. */
export function scale(zLow, zHigh, factor) {
  const f0 = factor | 0;
  const f1 = Math.floor(factor / 0x100000000);
  let middle = (Math.imul(zHigh, f0) >>> 0) + (multiplyHigh(zLow, f0) >>> 0);
  let found = multiplyHigh(zHigh, f0) >>> 0;
  if (f1) {
    middle += Math.imul(zLow, f1) >>> 0;
    found += (zHigh >>> 0) * f1 + (multiplyHigh(zLow, f1) >>> 0);
  }
  return found + Math.floor(middle / 0x100000000);
}

/** z of docs/format.md, section 4: the finaliser of splitmix64, of h + i·0x9e3779b97f4a7c15. */
export function mix(hLow, hHigh, i) {
  multiply(0x7f4a7c15, 0x9e3779b9, i, 0);
  const sum = (low[0] >>> 0) + (hLow >>> 0);
  let z0 = sum | 0;
  let z1 = (high[0] + hHigh + (sum > 0xffffffff ? 1 : 0)) | 0;
  multiply(z0 ^ ((z0 >>> 30) | (z1 << 2)), z1 ^ (z1 >>> 30), 0x1ce4e5b9, 0xbf58476d);
  z0 = low[0];
  z1 = high[0];
  multiply(z0 ^ ((z0 >>> 27) | (z1 << 5)), z1 ^ (z1 >>> 27), 0x133111eb, 0x94d049bb);
  z0 = low[0];
  z1 = high[0];
  low[0] = z0 ^ ((z0 >>> 31) | (z1 << 1));
  high[0] = z1 ^ (z1 >>> 31);
}
