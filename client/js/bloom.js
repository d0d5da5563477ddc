/** Bloom filters under randomized response (docs/format.md, sections 4, 5 and 11). */

import { high, low, mix, scale } from "./words.js";

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => byte.toString(2).replaceAll("0", "").length);

/** Positions of a digest, k numbers below m. */
export function positions(bits, hashes, digestLow, digestHigh, found) {
  found[0] = scale(digestLow, digestHigh, bits);
  for (let i = 1; i < hashes; i++) {
    mix(digestLow, digestHigh, i);
    found[i] = scale(low[0], high[0], bits);
  }
}

/** Public parameters of a Bloom filter, and what its readings mean; a reading is d·(k + 1) + t, t ones at d positions. */
export class Bloom {
  name = "bloom";

  /** @param {import("./header.js").Fields} fields the message BloomParameters */
  constructor(fields) {
    this.bits = fields.number("bits", 1, 8, 2 ** 40);
    this.hashes = fields.number("hashes", 2, 1, 32);
    this.flipThreshold = fields.integer("flip_threshold", 3, 1n, 1n << 63n);
    this.changedBits = fields.number("changed_bits", 4, 1, 2 ** 32 - 1);
  }

  get vectorBytes() {
    return Math.ceil(this.bits / 8);
  }

  /** Whether the bits beyond m are 0. */
  isPadded(vector) {
    return (vector[vector.length - 1] & (0xff >> (this.bits % 8 || 8))) === 0;
  }

  /** A function from digests to readings. */
  reader(vector) {
    const { bits, hashes } = this;
    const found = new Float64Array(hashes);
    return (digests) => {
      const readings = new Uint16Array(digests.length / 2);
      for (let n = 0; n < readings.length; n++) {
        positions(bits, hashes, digests[2 * n], digests[2 * n + 1], found);
        let reading = 0;
        for (let i = 0; i < hashes; i++) {
          const place = found[i];
          let j = 0;
          while (found[j] !== place) j++;
          if (j < i) continue; // counted already
          const byte = vector[Math.floor(place / 8)];
          reading += hashes + 1 + ((byte >> (7 - (place % 8))) & 1);
        }
        readings[n] = reading;
      }
      return readings;
    };
  }

  /** Scores by reading, whether the vector shows nothing, and how often members and others have a score above 0. */
  law(vector) {
    let ones = 0;
    for (let i = 0; i < vector.length; i++) ones += ONES[vector[i]];
    const share = ones / this.bits;
    const flip = Number(this.flipThreshold) / 2 ** 64;
    const saturated = share >= 1 - flip;
    const within = (p) => Math.min(Math.max(p, flip), 1 - flip);
    const forOne = Math.log1p(-flip) - Math.log(within(share));
    const forZero = Math.log(flip) - Math.log(within(1 - share));
    const side = this.hashes + 1;
    const scores = new Float64Array(side * side);
    const found = { scores, saturated, truePositiveRate: 0, falsePositiveRate: 0 };
    let [members, others] = [[1], [1]]; // the chances of t ones at d positions
    for (let d = 0; d < side && !saturated; d++) {
      const chance = this.#distinctPositions(d);
      for (let t = 0; t <= d; t++) {
        const score = t * forOne + (d - t) * forZero;
        scores[d * side + t] = score;
        found.truePositiveRate += score > 0 ? chance * members[t] : 0;
        found.falsePositiveRate += score > 0 ? chance * others[t] : 0;
      }
      members = oneMore(members, 1 - flip);
      others = oneMore(others, share);
    }
    return found;
  }

  /** The chance that an element has d distinct positions: k draws, each of which is new with the chance 1 - d/m. */
  #distinctPositions(d) {
    let chances = [1];
    for (let i = 0; i < this.hashes; i++) {
      const fresh = chances.map((chance, seen) => chance * Math.max(1 - seen / this.bits, 0));
      chances = [...chances, 0].map((chance, seen) => chance * Math.min(seen / this.bits, 1) + (fresh[seen - 1] ?? 0));
    }
    return chances[d];
  }
}

/** The chances of t ones among n + 1 positions, from those among n. */
function oneMore(chances, one) {
  return [...chances, 0].map((chance, t) => chance * (1 - one) + (chances[t - 1] ?? 0) * one);
}
