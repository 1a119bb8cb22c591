//go:build wasip1

// The guest's edge: pulls the request in pieces, hands the answer over whole.
package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// A sandbox renders once: collecting early costs more than it frees. The first collection comes at 16 MB, not at 4.
func init() { debug.SetGCPercent(400) }

//go:wasmimport sutler:helm-engine/host@0.1.0 result
func hostResult(data unsafe.Pointer, size uint32)

// Adapter pull fills buf and writes {pointer, length} to ret.
//
//go:wasmimport pull read
func hostRead(off, limit uint32, buf, ret unsafe.Pointer)

const pieceSize = 64 << 10

// Package variables: the adapter writes to their addresses while no Go frame points at them.
var (
	piece = make([]byte, pieceSize)
	read  [2]uint32
)

//go:wasmexport run
func run() {
	out := encode(answerTo(request()))
	hostResult(unsafe.Pointer(unsafe.SliceData(out)), uint32(len(out)))
	runtime.KeepAlive(out)
}

func request() []byte {
	var in []byte
	for {
		hostRead(uint32(len(in)), pieceSize, unsafe.Pointer(unsafe.SliceData(piece)), unsafe.Pointer(&read))
		if read[1] == 0 {
			return in
		}
		in = append(in, piece[:read[1]]...)
	}
}

// answerTo never panics: a chart that breaks the engine is that chart's error.
func answerTo(in []byte) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: fmt.Sprintf("the template engine panicked: %v", p)}
		}
	}()
	a, err := render(in)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return a
}

func encode(a answer) []byte {
	out, err := json.Marshal(a)
	if err != nil {
		// A chart whose parsed values have no JSON form, such as a NaN.
		out, _ = json.Marshal(answer{Error: fmt.Sprintf("the rendered chart has no JSON form: %v", err)})
	}
	return out
}

// A c-shared module runs init and exports; main is never called.
func main() {}
