"""Texts of tensors, as ipu_print_tensor writes them."""

import unittest

import torch

from poptorch._ops.tensor_text import TextFormat, checked_format, tensor_text


def text(tensor, title="", **changes):
    return tensor_text(title, tensor, TextFormat()._replace(**changes))


_SQUARE = torch.tensor([[1.4962566, 1.7682219], [1.0884774, 1.1320305]])


class TensorTextTest(unittest.TestCase):
    def test_matrix(self):
        curly = {"separator": " ", "open_bracket": "{", "close_bracket": "}"}
        expected = "title: {\n {1.4962566 1.7682219}\n {1.0884774 1.1320305}\n}"
        self.assertEqual(text(_SQUARE, "title", digits=8, **curly), expected)
        expected = "(\n (1.496, 1.768)\n (1.088, 1.132)\n)"
        self.assertEqual(text(_SQUARE), expected)

    def test_long_rows_are_broken(self):
        square = {"separator": ",", "open_bracket": "[", "close_bracket": "]"}
        expected = (
            "title: [\n [1.4962566e+00,\n   1.7682219e+00]\n [1.0884774e+00,\n   1.1320305e+00]\n]"
        )
        got = text(
            _SQUARE, "title", max_line_width=15, digits=8, float_format="scientific", **square
        )
        self.assertEqual(got, expected)
        row = torch.arange(40)
        lines = text(row, max_line_width=20).split("\n")
        self.assertLessEqual(max(map(len, lines)), 20)
        self.assertEqual(
            [int(word) for word in "".join(lines).strip("()").split(",")], row.tolist()
        )
        self.assertNotIn("\n", text(row, max_line_width=0))

    def test_dimensions(self):
        cube = torch.arange(8).reshape(2, 2, 2)
        expected = "(\n (\n  (0, 1)\n  (2, 3)\n )\n (\n  (4, 5)\n  (6, 7)\n )\n)"
        self.assertEqual(text(cube), expected)
        self.assertEqual(text(torch.tensor(3.25), "x"), "x: 3.250")
        self.assertEqual(text(torch.tensor([])), "()")

    def test_summary(self):
        row = torch.arange(100)
        short = {"summarise_threshold": 99, "edge_items": 2}
        self.assertEqual(text(row, **short), "( 0,  1, ..., 98, 99)")
        self.assertNotIn("...", text(row, summarise_threshold=100))
        self.assertNotIn("...", text(row, summarise_threshold=0))
        matrix = torch.arange(12).reshape(6, 2)
        expected = "(\n ( 0,  1)\n ...\n (10, 11)\n)"
        self.assertEqual(text(matrix, summarise_threshold=5, edge_items=1), expected)

    def test_alignment_and_formats(self):
        numbers = torch.tensor([-1.5, 100.25])
        self.assertEqual(text(numbers), "( -1.5, 100.2)")
        self.assertEqual(text(numbers, float_format="fixed", digits=6), "( -1.500, 100.250)")
        self.assertEqual(text(numbers, float_format="none"), "(-1.5, 100.2)")
        self.assertEqual(text(numbers, digits=0), "(-1.5, 100.25)")
        self.assertEqual(text(torch.tensor([1e-9, 2.0])), "(1.000e-09, 2.000e+00)")
        self.assertEqual(text(torch.tensor([True, False])), "(1, 0)")
        special = torch.tensor([float("inf"), float("nan"), -float("inf")])
        self.assertEqual(text(special), "( inf,  nan, -inf)")
        self.assertEqual(text(torch.tensor([0.1]).half(), digits=0), "(0.1)")

    def test_refused(self):
        good = TextFormat()._asdict()
        for name, value in (("digits", -1), ("edge_items", 1.5), ("float_format", "hex"),
                            ("separator", None)):  # fmt: skip
            with self.assertRaisesRegex(ValueError, f"{name} is .* must be"):
                checked_format(**{**good, name: value})


if __name__ == "__main__":
    unittest.main()
