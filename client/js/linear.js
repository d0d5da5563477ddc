/** Solutions of linear equations (docs/format.md, behind section 6, and section 11). */

import { high, low, mix, multiplyHigh, scale } from "./words.js";
import { ReleaseRejected } from "./errors.js";

const SECTION_COLUMNS = 2 ** 22;
const MOST_CELLS = 2 ** 40;
const PROBES = 2 ** 14;
const SATURATED = 0.9;

/**
 * The row of a digest: its first column is returned, its coefficients are the four words of `row`, bit 0 first.
 *
 * @param {Int32Array} row
 */
export function equation(columns, band, digestLow, digestHigh, row) {
  const sections = Math.ceil(columns / SECTION_COLUMNS);
  const length = columns / sections;
  const section = scale(digestLow, digestHigh, sections);
  const rest = (multiplyHigh(digestLow, sections) + Math.imul(digestHigh, sections)) | 0;
  const first = section * length + scale(Math.imul(digestLow, sections), rest, length - band + 1);
  mix(digestLow, digestHigh, 1);
  row[0] = low[0] | 1;
  row[1] = high[0];
  mix(digestLow, digestHigh, 2);
  row[2] = low[0];
  row[3] = high[0];
  for (let i = 0; i < 4; i++) {
    const left = band - 32 * i;
    if (left < 32) row[i] &= left > 0 ? (1 << left) - 1 : 0;
  }
  return first;
}

/** Public parameters of a linear release, and what its readings mean; a reading is 1 for "yes", 0 for "no". */
export class Linear {
  name = "linear";

  /** @param {import("./header.js").Fields} fields the message LinearParameters */
  constructor(fields) {
    this.band = fields.number("band", 2, 1, 128);
    this.planes = fields.number("planes", 3, 1, 32);
    this.columns = fields.number("columns", 1, this.band, Math.floor(MOST_CELLS / this.planes));
    this.dropThreshold = fields.integer("drop_threshold", 4, 1n, (1n << 64n) - 1n);
    const sections = Math.ceil(this.columns / SECTION_COLUMNS);
    if (sections > 1 && this.columns % (64 * sections)) {
      throw new ReleaseRejected(`release header: columns has to be a multiple of ${64 * sections} where there are so many`);
    }
  }

  get vectorBytes() {
    return 8 * this.planes * Math.ceil(this.columns / 64);
  }

  /** Whether the bits beyond c are 0 in every plane. */
  isPadded(vector) {
    const used = this.columns % 64;
    for (let byte = used >> 3; used && byte < 8; byte++) {
      const beyond = byte === used >> 3 ? 0xff << (used % 8) : 0xff;
      for (let plane = 1; plane <= this.planes; plane++) {
        if (vector[vector.length - 8 * plane + byte] & beyond) return false;
      }
    }
    return true;
  }

  /** A function from digests to readings. */
  reader(vector) {
    const { columns, band, planes } = this;
    const bytes = new DataView(vector.buffer, vector.byteOffset, vector.length);
    // Words of 32 bits; zeros behind the last column, as a row is read in three pieces of 64 columns wherever it ends.
    const words = new Int32Array(vector.length / 4 + 4 * planes);
    for (let i = 0; i < vector.length / 4; i++) words[i] = bytes.getInt32(4 * i, true);
    const row = new Int32Array(4);
    const moved = new Int32Array(6);
    return (digests) => {
      const readings = new Uint16Array(digests.length / 2);
      for (let n = 0; n < readings.length; n++) {
        const first = equation(columns, band, digests[2 * n], digests[2 * n + 1], row);
        move(row, first % 64, moved);
        let at = Math.floor(first / 64) * 2 * planes;
        let yes = 1;
        for (let plane = 0; plane < planes && yes; plane++, at += 2) {
          let seen = (words[at] & moved[0]) ^ (words[at + 1] & moved[1]);
          seen ^= (words[at + 2 * planes] & moved[2]) ^ (words[at + 2 * planes + 1] & moved[3]);
          seen ^= (words[at + 4 * planes] & moved[4]) ^ (words[at + 4 * planes + 1] & moved[5]);
          seen ^= seen >>> 16;
          seen ^= seen >>> 8;
          seen ^= seen >>> 4;
          yes = (0x9669 >>> (seen & 15)) & 1; // 1 where the four bits have an even number of ones
        }
        readings[n] = yes;
      }
      return readings;
    };
  }

  /** As `Bloom.law`; digests of no element show how many others are answered yes. */
  law(vector) {
    const digests = new Uint32Array(2 * PROBES);
    for (let i = 1; i <= PROBES; i++) {
      const digest = BigInt.asUintN(64, BigInt(i) * 0xd1b54a32d192ed03n);
      digests[2 * i - 2] = Number(digest & 0xffffffffn);
      digests[2 * i - 1] = Number(digest >> 32n);
    }
    const yes = this.reader(vector)(digests).reduce((sum, reading) => sum + reading, 0);
    const others = 2 ** -this.planes;
    const expected = PROBES * others;
    const byChance = yes <= expected + 5.2 * Math.sqrt(expected) + 10; // exceeded once in 10^7
    const dependence = byChance ? 0 : (yes / PROBES - others) / (1 - others);
    const saturated = dependence >= SATURATED;
    const drop = Number(this.dropThreshold) / 2 ** 64;
    const independent = (1 - dependence) * (1 - others);
    const yesOf = [1 - drop * independent, 1 - independent];
    const scores = [Math.log(drop), Math.log(yesOf[0]) - Math.log(yesOf[1])];
    const [truePositiveRate, falsePositiveRate] = !saturated && scores[1] > 0 ? yesOf : [0, 0];
    return { scores: Float64Array.from(saturated ? [0, 0] : scores), saturated, truePositiveRate, falsePositiveRate };
  }
}

/** 128 coefficients moved up by 0 to 63 columns, into six words. */
function move(row, by, moved) {
  const whole = by >>> 5;
  const shift = by & 31;
  moved[0] = moved[1] = moved[4] = moved[5] = 0;
  let carried = 0;
  for (let i = 0; i < 4; i++) {
    moved[i + whole] = (row[i] << shift) | carried;
    carried = shift ? row[i] >>> (32 - shift) : 0;
  }
  moved[4 + whole] = carried;
}
