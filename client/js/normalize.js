/** Elements as callers hold them → the bytes that are hashed (docs/format.md, section 2). */

import tr46 from "tr46";

import { InvalidInput } from "./errors.js";

export const MAX_ELEMENT_BYTES = 4096;
const MAX_MARKS = 30;
const LONGEST_DOMAIN = 253;

const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACE_BEFORE = new RegExp(`^[${SPACE}]+`);
const SPACE_CHARACTER = new RegExp(`[${SPACE}]`);
const SPACE_OR_CONTROL = new RegExp(`[${SPACE}\\p{Cc}]`, "u");
const NOT_ASCII = /[^\x00-\x7f]/;
const LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
const PLAIN_ADDRESS = new RegExp(`^[!-?A-~]+@${LABEL}(?:\\.${LABEL})*\\.?$`);
const ADDRESS_LITERAL = /^\[[!-Z^-~]+\]$/;
const DOMAIN_RULES = { checkBidi: true, checkJoiners: true, useSTD3ASCIIRules: true };

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Without the white space of Python's str.strip, which is not that of String.prototype.trim. */
function strip(text) {
  let end = text.length;
  while (end > 0 && SPACE_CHARACTER.test(text[end - 1])) end--;
  return text.slice(0, end).replace(SPACE_BEFORE, "");
}

/** Full case folding of Unicode. It is the lower case of the upper case but for ı, ẞ, and Cherokee, which folds to capitals. */
function caseFold(text) {
  if (!NOT_ASCII.test(text)) return text.toLowerCase();
  let folded = "";
  for (const character of text) {
    if (character === "ı") folded += character;
    else if (character === "ẞ") folded += "ss";
    else if (/[\u13a0-\u13fd\uab70-\uabbf]/.test(character)) folded += character.toUpperCase();
    else folded += character.toUpperCase().toLowerCase(); // one by one: a final sigma is no special case here
  }
  return folded;
}

/**
 * Whether the canonical combining class is not 0, which no regular expression tells: NFD moves such a mark before or behind
 * another one. The three exceptions have class 0 and consist of marks that have not.
 */
function isCombining(character) {
  if (!/\p{M}/u.test(character) || /[\u0f73\u0f75\u0f81]/.test(character)) return false;
  const first = String.fromCodePoint(character.normalize("NFD").codePointAt(0));
  return `${first}\u0334`.normalize("NFD") !== `${first}\u0334` || `\u0301${first}`.normalize("NFD") !== `\u0301${first}`;
}

function nfc(text) {
  if (!NOT_ASCII.test(text)) return text;
  let run = 0;
  for (const character of text) {
    run = isCombining(character) ? run + 1 : 0;
    if (run > MAX_MARKS) throw new InvalidInput(`has to be text with at most ${MAX_MARKS} combining marks in a row`);
  }
  return text.normalize("NFC");
}

function email(text) {
  text = strip(text);
  if (!NOT_ASCII.test(text)) {
    text = text.toLowerCase();
    if (text.length <= LONGEST_DOMAIN && PLAIN_ADDRESS.test(text) && !text.includes("xn--")) return text;
  }
  text = nfc(text);
  const at = text.lastIndexOf("@");
  const local = text.slice(0, Math.max(at, 0));
  const quoted = local.length > 2 && local.startsWith('"') && local.endsWith('"');
  if (!local || (!quoted && SPACE_OR_CONTROL.test(local))) {
    throw new InvalidInput("has to be an e-mail address, local@domain");
  }
  return `${local.toLowerCase()}@${asciiDomain(text.slice(at + 1))}`;
}

function asciiDomain(domain) {
  if (ADDRESS_LITERAL.test(domain)) return domain.toLowerCase();
  const found = tr46.toASCII(domain, DOMAIN_RULES) ?? "";
  const labels = found.replace(/\.$/, "").split(".");
  const plain = tr46.toUnicode(labels.join("."), DOMAIN_RULES).domain.split(".");
  const hyphens = plain.some((label) => label.startsWith("-") || label.endsWith("-"));
  const lengths = labels.every((label) => label.length >= 1 && label.length <= 63) && labels.join(".").length <= LONGEST_DOMAIN;
  if (hyphens || !lengths || !encodedAsGiven(domain, labels)) {
    throw new InvalidInput("has to be an e-mail address with a valid domain");
  }
  return found;
}

/** Whether each label that came encoded is what its content is encoded to. */
function encodedAsGiven(domain, labels) {
  const given = domain.normalize("NFKC").toLowerCase().replace(/\p{Default_Ignorable_Code_Point}/gu, "").split(/[.\u3002]/);
  return given.every((label, i) => !label.startsWith("xn--") || label === labels[i]);
}

const CHANGES = { none: null, "trim-casefold-1": caseFolded, "nfc-1": nfc, "email-1": email };

function caseFolded(text) {
  return caseFold(strip(text));
}

/**
 * A function of an element and a buffer of at least 3·4096 bytes, which writes the element's bytes there and returns how
 * many: 1 to 4096. It throws InvalidInput, without the element in it, for what is no element under the profile.
 *
 * @param {string} profile name with version, such as "email-1"
 * @returns {(element: string | Uint8Array, buffer: Uint8Array) => number}
 */
export function makeNormalizer(profile) {
  const change = CHANGES[profile];
  return (element, buffer) => {
    if (typeof element === "string") return write(change ? change(element) : element, buffer);
    if (!(element instanceof Uint8Array)) throw new InvalidInput("has to be a string or a Uint8Array");
    if (change) return write(change(decode(element)), buffer);
    if (element.length < 1 || element.length > MAX_ELEMENT_BYTES) throw wrongLength();
    buffer.set(element);
    return element.length;
  };
}

function decode(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new InvalidInput("has to be valid UTF-8");
  }
}

function write(text, buffer) {
  const length = text.length;
  if (length < 1 || length > MAX_ELEMENT_BYTES) throw wrongLength(); // a code unit takes at least a byte
  for (let i = 0; i < length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0x7f) return writeUnicode(text, buffer);
    buffer[i] = code;
  }
  return length;
}

function writeUnicode(text, buffer) {
  if (!text.isWellFormed()) throw new InvalidInput("has to be valid Unicode text, without lone surrogates");
  const { written } = encoder.encodeInto(text, buffer);
  if (written > MAX_ELEMENT_BYTES) throw wrongLength();
  return written;
}

function wrongLength() {
  return new InvalidInput(`has to be 1 to ${MAX_ELEMENT_BYTES} bytes long after normalization`);
}
