"""Totals and discounts, in cents."""

from decimal import ROUND_HALF_UP, Decimal


def total(prices: list[int], discount_percent: int = 0) -> int:
    """The sum after the discount, rounded half up."""
    share = Decimal(100 - discount_percent) / 100
    return int((Decimal(sum(prices)) * share).quantize(Decimal(1), ROUND_HALF_UP))
