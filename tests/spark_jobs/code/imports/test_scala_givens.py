"""Givens of Scala 3 that are imported without a name."""

from __future__ import annotations

import pytest

from spark_jobs.code.imports.scala_givens import scala_givens
from tests.spark_jobs.code.made_repository import targets

FILES = {
    "Ord.scala": "package shop.base\n\ngiven Ord[Int] with\n  def compare(a: Int) = 0\n",
    "Show.scala": "package shop\npackage base\ngiven Show[String] = ???\n",
    "Instances.scala": """package shop
object Instances:
  given ints: Ord[Int] = ???
  object Deep {
    given Show[Int] = ???
  }
""",
    "Local.scala": """package shop.local
def f =
  given Ord[Int] = ???
class C:
  given Show[Int] = ???
// given X = 1
""",
    "Package.scala": "package shop\npackage object tools {\n  given Eq[Int] = ???\n}\n",
}


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("import shop.base.given", {"Ord.scala", "Show.scala"}),
        ("package shop\nimport base.given", {"Ord.scala", "Show.scala"}),
        ("package shop.x\nimport base.{given, *}", {"Ord.scala", "Show.scala"}),
        ("import shop.base.{given Ord[?], Show}", {"Ord.scala"}),
        ("import _root_.shop.base.{given Show[String]}", {"Show.scala"}),
        ("import shop.Instances.given", {"Instances.scala"}),
        ("import shop.Instances.Deep.{\n  given\n}", {"Instances.scala"}),
        ("import a.b, shop.base.{given Ord[?]}, c.d", {"Ord.scala"}),
        ("import shop.base.*", set()),
        ("import shop.local.given", set()),
        ('// import shop.base.given\nval s = "import shop.base.given"', set()),
        ("import shop.base.givens", set()),
        ("import shop.tools.given", {"Package.scala"}),
        ("import shop.given", set()),
        ("object All:\n  export shop.base.{given Ord[?]}", {"Ord.scala"}),
    ],
)
def test_an_import_of_givens_leads_to_the_files_that_have_them(text: str, needed: set[str]) -> None:
    """By package, object and type; local ones and members of classes cannot be imported so."""
    assert targets(scala_givens, {**FILES, "X.scala": text}, "X.scala") == sorted(needed)
