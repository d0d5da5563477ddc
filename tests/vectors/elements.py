"""What the vectors are about: texts to normalise, and the spec."""

from __future__ import annotations

NORMALIZED = [
    "",
    " ",
    "plain",
    "  MiXeD Case\t",
    "\u00a0\u2003padded\u3000\x1f\x85",
    "\u200bzero width is no white space\ufeff",
    "Straße",
    "STRASSE",
    "\u1e9e",  # capital sharp s
    "ΟΔΥΣΣΕΥΣ",  # a final sigma in lower case, none when folded
    "οδυσσευς",
    "İstanbul",  # dotted capital I
    "ISTANBUL",
    "ıstanbul",  # dotless i
    "ǅ",  # title case
    "ﬁn",  # ligature
    "ﬀﬃ",
    "Å",  # one character
    "A\u030a",  # two
    "\u212b",  # the Ångström sign
    "e\u0301\u0323",  # marks out of canonical order
    "e\u0323\u0301",
    "가",  # Hangul syllable
    "\u1100\u1161",  # its parts
    "\u0958",  # a composition exclusion
    "\u0344",
    "ᏣᎳᎩ",  # Cherokee folds to capitals
    "Ⅷ",
    "１２３",  # full width
    "\U0001d400",  # mathematical bold A
    "👩\u200d💻",
    "\U00010400",  # Deseret: case beyond the first plane
    "\ud800",  # a lone surrogate
    "a\ud800b",
    "nul\0inside",
    "two\nlines",
    "Alice@Example.COM",
    "  bob@example.com\n",
    "no-at-sign",
    "@example.com",
    "carol@",
    "d@e@example.com",
    '"quoted@local"@example.com',
    "with space@example.com",
    "É.Moreau@exemple.fr",
    "E\u0301.Moreau@exemple.fr",
    "İ@example.com.tr",
    "ΑΣ@example.gr",
    "dan@EXAMPLE.com.",
    "eve@bücher.example",
    "eve@BU\u0308CHER.example",
    "eve@xn--bcher-kva.example",
    "eve@XN--BCHER-KVA.EXAMPLE",
    "fred@straße.example",  # kept by non-transitional processing
    "fred@strasse.example",
    "gus@σς.example",
    "gus@ΣΣ.example",
    "hal@例え.テスト",
    "ida@example。com",  # ideographic full stop
    "ida@example．com",  # full-width full stop
    "jon@ﬁ.example",
    "kim@ⅳ.example",
    "leo@127.0.0.1",
    "leo@[127.0.0.1]",
    "mia@exa mple.com",
    "mia@under_score.example",
    "mia@-leading.example",
    "mia@trailing-.example",
    "mia@double..dot",
    "mia@.leading.dot",
    "mia@☃.example",
    "mia@ab--cd.example",
    "mia@\U0001f4a9.la",
    "mia@xn--ls8h.la",
    "mia@[IPv6:2001:DB8::1]",
    '"with space"@example.com',
    "mia@" + "x" * 63 + ".example",
    "mia@" + "x" * 64 + ".example",
    "mia@localhost",
    "user+tag@example.com",
]

LONG = [("x", 4096), ("x", 4097), ("é", 2048), ("é", 2049)]
"""An element has at most 4096 bytes."""

SPEC_FIELDS = {
    "size": 1_000_000,
    "encoding": "bloom",
    "bits": 38_947_891,
    "hashes": 1,
    "scheme": "blake2b-1",
    "seed": 4_294_967_295,
    "key_check": "0011223344556677",
    "normalization": "email-1",
    "adjacency": "replace-one",
    "calibration": "exact",
    "epsilon": 3.0,
    "delta": 1e-09,
    "elements_per_user": 2,
    "min_size": 1000,
}

SPEC_TEXT = """\
# Another program's writing of a spec: other order, other spacing, a whole number for epsilon.
epsilon   = 3
delta = 0.000_000_001  # TOML takes underscores
veilset_spec = 1
scheme = 'blake2b-1'
key_check = "0011223344556677"
normalization = "email-1"
adjacency = "replace-one"
calibration = "exact"
size = 1_000_000
encoding = 'bloom'
bits = 38947891
hashes = 0x1
seed = 4294967295
elements_per_user = 2
min_size = 1000
"""
