"""How messages are stored and understood: exact JSON, and one codec per format."""

from onefold.messages.codecs import FORMATS, Codec, codec, convert, draft, plain_draft, recognise
from onefold.messages.exact import decode, digest, encode

__all__ = ["FORMATS", "Codec", "codec", "convert", "decode", "digest", "draft", "encode", "plain_draft", "recognise"]
