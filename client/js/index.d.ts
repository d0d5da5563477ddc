/** A reader of veilset releases for browsers and Node. */

/** Text, or bytes: as they are under the normalization none, else as UTF-8. */
export type Element = string | Uint8Array;

export interface Options {
  /** Ed25519 keys that are trusted, raw or in hexadecimal digits. Take them from the owner of the set by another way than the release. */
  publicKeys: (string | Uint8Array)[];
  /** The secret of a keyed set, 16 to 64 bytes; null opens such a release without it: its header and rates are there, and asking throws. */
  secret?: Uint8Array | null;
  /** Refuse a release of another set. */
  setName?: string;
  /** Refuse an older release, such as one from before the last that was seen. */
  minSequence?: number | bigint;
}

export interface Bloom {
  readonly name: "bloom";
  readonly bits: number;
  readonly hashes: number;
  readonly flipThreshold: bigint;
  readonly changedBits: number;
}

export interface Linear {
  readonly name: "linear";
  readonly columns: number;
  readonly band: number;
  readonly planes: number;
  readonly dropThreshold: bigint;
}

export interface Header {
  readonly setName: string;
  readonly sequence: bigint;
  readonly hashing: { readonly scheme: "mmh3-1" | "blake2b-1"; readonly seed: number; readonly keyCheck: string };
  readonly encoding: Bloom | Linear;
  readonly privacy: {
    readonly epsilon: number;
    readonly delta: number;
    readonly adjacency: "add-remove" | "replace-one";
    readonly calibration: "w-quantile" | "exact" | "worst-case";
    readonly elementsPerUser: number;
    readonly minSize: number;
  };
  /** Name with version, such as "email-1". */
  readonly normalization: string;
  /** Microseconds since 1970-01-01 UTC. */
  readonly createdAtUs: bigint;
  readonly capacity: number;
  readonly count: {
    readonly value: bigint;
    readonly mechanism: "laplace" | "logistic" | "gaussian";
    readonly scale: number;
    readonly sensitivity: number;
    readonly epsilon: number;
    readonly delta: number;
  } | null;
  readonly totalNanoEpsilon: bigint;
  readonly totalDelta: string;
  readonly limitNanoEpsilon: bigint;
  readonly limitDelta: string;
  readonly sharedSeed: boolean;
  /** Sequence of the base release. */
  readonly generation: bigint;
  readonly earlier: { readonly sequence: bigint; readonly manifestSha256: Uint8Array }[];
  readonly plannedIncrements: number;
  readonly tombstones: Bloom | Linear | null;
  readonly removalsEpsilon: number;
  readonly vectorBytes: number;
  readonly chunkSha256: Uint8Array[];
}

/** A checked base release and its increments in memory. */
export class Release {
  private constructor();
  /** What the newest release says of itself. */
  readonly header: Header;
  /** Whether all vectors hold too much to show anything; then all scores are 0. */
  readonly saturated: boolean;
  /** The increments, by their number in the generation, that hold too much and are left out of the answers; the base has 0. */
  readonly saturatedParts: number[];
  /** How often a member is answered yes, in [0, 1]. */
  readonly truePositiveRate: number;
  /** How often an element that is not in the set is answered yes, in [0, 1]. */
  readonly falsePositiveRate: number;
  /** Whether an element is taken for a member. */
  has(element: Element): boolean;
  /** 1 where an element is taken for a member, else 0. */
  hasMany(elements: Iterable<Element>): Uint8Array;
  /** The log-likelihood ratio of "member" to "not a member" of each element, in nats. */
  scores(elements: Iterable<Element>): Float64Array;
  /** `hasMany` and `scores`, for the time of one. */
  answers(elements: Iterable<Element>): { members: Uint8Array; scores: Float64Array };
  /** The probability of each element to be a member; prior: the probability before asking, in [0, 1]. */
  posteriors(elements: Iterable<Element>, prior: number): Float64Array;
}

/** Checks a release file, with all releases of its generation, and makes it ready to answer. Throws ReleaseRejected or InvalidInput. */
export function openRelease(file: Uint8Array | ArrayBuffer, options: Options): Release;

/** The probability to be a member, from a score and the probability before asking. */
export function posterior(score: number, prior: number): number;

/** A release that is damaged, not signed by a trusted key, or not of this format. */
export class ReleaseRejected extends Error {}

/** An argument or an element that cannot be used. */
export class InvalidInput extends Error {}
