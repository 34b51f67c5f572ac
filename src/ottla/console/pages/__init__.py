"""The pages: each module reads requests, calls its service, and renders templates; it exports `routes`.

Numbers in their addresses (`{offset:int}`) have up to 18 digits: nothing in a cluster has a larger one, and Python
refuses to read numbers of thousands of digits.
"""

from starlette.convertors import IntegerConvertor, register_url_convertor


class BoundedInteger(IntegerConvertor):
    """An address with a longer number is that of no page."""

    regex = "[0-9]{1,18}"


register_url_convertor("int", BoundedInteger())
