/** The errors of this package. Messages name what is wrong and never repeat an element. */

/** A release that is damaged, not signed by a trusted key, or not of this format. */
export class ReleaseRejected extends Error {
  name = "ReleaseRejected";
}

/** An argument or an element that cannot be used. */
export class InvalidInput extends Error {
  name = "InvalidInput";
}
