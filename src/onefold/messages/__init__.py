"""How messages are stored and understood: exact JSON, and one codec per format."""

from onefold.messages.codecs import FORMATS, Codec, codec, convert, detect_format, draft, plain_draft
from onefold.messages.lossless_json import decode, digest, encode

__all__ = [
    "FORMATS",
    "Codec",
    "codec",
    "convert",
    "decode",
    "detect_format",
    "digest",
    "draft",
    "encode",
    "plain_draft",
]
