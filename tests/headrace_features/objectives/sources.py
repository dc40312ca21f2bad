"""A file in each of six languages, with letters of several code points, tabs and both ends of lines."""

from __future__ import annotations

SOURCES = {
    "Python": """import os


def größe(a, b):
    if a > b:
        return os.path.join(str(a), f(b, c))
    return 0
""",
    "C": """#include <stdio.h>
int main(int n, char **v) {
  for (int i = 0; i < n; i++) puts(v[i]);
  return 0; /* e\u0301 */
}
""".replace("\n", "\r\n"),
    "Go": """package main

import "fmt"

func main() {
\tif x := f(1, 2); x > 0 {
\t\tfmt.Println("👩‍💻", x)
\t}
}
""",
    "Java": """class A {
  int f(int a) {
    while (a > 1) { a = g(a, b.c()); }
    return a;
  }
}
""",
    "JavaScript": """const f = (a, b) => ({a, b});
function g(x) {
  try { return f(x, [1, 2]); } catch (e) { throw e; }
}
""",
    "Rust": """fn main() {
    let v: Vec<i32> = (0..9).map(|x| f(x, 1)).collect();
    if v.len() > 3 { println!("ü{}", 1); }
}
""",
}
