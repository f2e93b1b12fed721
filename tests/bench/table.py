"""Rows of what was measured beside what: medians of interleaved rounds, their ratio, and whether it is what is asked."""
import statistics

WIDTH = 66


def heading():
    return f"{'':{WIDTH}} {'ours':>14} {'peer':>14} {'ratio':>7} {'target':>8}"


def ratio(ours, peer):
    """Of the medians of two lists of samples."""
    return statistics.median(ours) / statistics.median(peer)


def verdict(found, target):
    return "" if target is None else "met" if found >= target else "MISSED"


def figure(value, unit):
    return f"{value / 1e9:.2f} GB/s" if unit == "bytes" else f"{value:,.0f} IOPS"


def row(name, unit, ours, peer, target=None):
    """The row as text, with every sample."""
    found = ratio(ours, peer)
    asked = "-" if target is None else f">= {target:.2f}"
    medians = [figure(statistics.median(samples), unit) for samples in (ours, peer)]
    text = f"{name:{WIDTH}} {medians[0]:>14} {medians[1]:>14} {found:7.2f} {asked:>8} {verdict(found, target)}".rstrip()
    for label, samples in (("ours", ours), ("peer", peer)):
        text += f"\n    {label} " + ", ".join(figure(sample, unit) for sample in samples)
    return text
