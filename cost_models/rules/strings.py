"""Strings, on the host: a string is 24 bytes in its tensor (``TString``), and content elsewhere.

The length of the content follows from no shape, so these costs are inaccurate: each string that is
read or written counts its 24 bytes and a short content.
"""

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count


@cost_rule("""
    StringSplit StringSplitV2 StringNGrams StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringJoin StringLower StringUpper StringLength StringStrip
    StringFormat StringToNumber Substr AsString ReduceJoin UnsortedSegmentJoin RegexReplace
    StaticRegexReplace RegexFullMatch StaticRegexFullMatch UnicodeDecode UnicodeDecodeWithOffsets
    UnicodeEncode UnicodeScript UnicodeTranscode EncodeBase64 DecodeBase64 DecodeRaw
    DecodePaddedRaw DecodeCSV DecodeJSONExample ParseExample ParseExampleV2 ParseSingleExample
    ParseSequenceExample ParseSequenceExampleV2 ParseTensor SerializeTensor
""")
def string_work(info: OpInfo) -> Work:
    """Every string is read or written once, with one operation per byte of a short content."""
    tensors = (*info.inputs, *info.outputs)
    strings = sum(element_count(tensor) for tensor in tensors if tensor.dtype == "string")
    return Work(
        flops=16 * strings,  # about one per byte of the guessed content
        bytes_accessed=sum(map(_bytes, tensors)),
        inaccurate=True,
    )


def _bytes(tensor: TensorProperties) -> int:
    if tensor.dtype == "string":
        return (24 + 16) * element_count(tensor)  # ``sizeof(tstring)`` and a guessed content
    return counted_bytes(tensor)
