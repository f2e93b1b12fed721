#!/usr/bin/env python3
"""Tests of what judges the benchmarks' figures."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import instructions
import table


class Instructions(unittest.TestCase):
    def test_a_rise_above_three_percent_fails_and_a_smaller_one_and_a_fall_do_not(self):
        recorded = {"raid5-rmw": 1000, "raid6-rmw": 1000, "superblock-parse": 1000}
        risen, new, gone = instructions.judge(recorded, {"raid5-rmw": 1031, "raid6-rmw": 1029, "superblock-parse": 500})
        self.assertEqual((list(risen), new, gone), (["raid5-rmw"], [], []))
        self.assertAlmostEqual(risen["raid5-rmw"], 0.031)

    def test_operations_that_came_or_went_are_told(self):
        risen, new, gone = instructions.judge({"what-was": 1}, {"raid5-rmw": 1})
        self.assertEqual((risen, new, gone), ({}, ["raid5-rmw"], ["what-was"]))


class Table(unittest.TestCase):
    def test_the_ratio_is_of_medians(self):
        self.assertEqual(table.ratio([1, 9, 3], [2, 1, 8]), 1.5)

    def test_a_row_says_whether_it_is_what_is_asked(self):
        self.assertEqual([table.verdict(1.0, 1.0), table.verdict(0.99, 1.0), table.verdict(0.5, None)], ["met", "MISSED", ""])
        text = table.row("a row", "iops", [5000], [1000], 5.0)
        self.assertIn("5.00  >= 5.00 met", text)
        self.assertIn("5,000 IOPS", text)


if __name__ == "__main__":
    unittest.main()
