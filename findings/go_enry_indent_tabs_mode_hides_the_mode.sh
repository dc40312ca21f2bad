#!/usr/bin/env bash
# github.com/go-enry/go-enry/v2 v2.9.6.
# One would guess: a modeline of Emacs means what it means to Linguist, whose port go-enry is: the language is what stands
#   behind the variable `mode`, so a header that begins with the line of Mozilla's sources, `-*- Mode: C++; ..
#   indent-tabs-mode: nil -*-`, is C++.
# Seen: the mode is looked for by `.*(?i:mode)\s*:\s*([^\s;]+)`, which takes the last `mode:` of the line, that of
#   `indent-tabs-mode: nil`. No language is called nil, so the line says nothing, and the rules call the header C. Without
#   that variable, or with it in front of the mode, it is C++. Linguist asks for a blank or a semicolon before `mode`.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	enry "github.com/go-enry/go-enry/v2"
)

func main() {
	var said []string
	for _, line := range []string{
		"Mode: C++; tab-width: 4; indent-tabs-mode: nil",
		"Mode: C++; tab-width: 4",
		"indent-tabs-mode: nil; Mode: C++",
	} {
		language := enry.GetLanguage("net.h", []byte("/* -*- "+line+" -*- */\nint a;\n"))
		fmt.Println(line, "->", language)
		said = append(said, language)
	}
	if said[0] != "C" || said[1] != "C++" || said[2] != "C++" {
		os.Exit(1)
	}
}
GO
cat > go.mod <<'MOD'
module modeline

go 1.22

require github.com/go-enry/go-enry/v2 v2.9.6
MOD
GOFLAGS=-mod=mod go run .
