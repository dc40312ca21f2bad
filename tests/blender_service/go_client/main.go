// Makes one gRPC call with grpc-go and writes what came back.
//
//	go_client ADDRESS AUTHORITY METHOD KIND < request > answers
//
// AUTHORITY is a PEM file, or empty for no TLS; KIND is `stream` for a call with many requests, else `one`. Written are
// the messages, each after its length in 4 bytes, then a line of JSON with code, message, header and trailer.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// raw gives messages as the bytes they are.
type raw struct{}

func (raw) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (raw) Unmarshal(content []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), content...)
	return nil
}

func (raw) Name() string { return "proto" }

func main() {
	address, authority, method, kind := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	request, err := io.ReadAll(os.Stdin)
	check(err)
	security := insecure.NewCredentials()
	if authority != "" {
		security, err = credentials.NewClientTLSFromFile(authority, "localhost")
		check(err)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<30)))
	check(err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	description := grpc.StreamDesc{ServerStreams: true, ClientStreams: kind == "stream"}
	stream, err := connection.NewStream(ctx, &description, method)
	check(err)
	check(stream.SendMsg(&request))
	check(stream.CloseSend())
	header, _ := stream.Header()
	var end error
	for {
		var answer []byte
		if end = stream.RecvMsg(&answer); end != nil {
			break
		}
		check(binary.Write(os.Stdout, binary.BigEndian, uint32(len(answer))))
		_, err = os.Stdout.Write(answer)
		check(err)
	}
	if end == io.EOF {
		end = nil
	}
	found := status.Convert(end)
	check(binary.Write(os.Stdout, binary.BigEndian, uint32(1<<32-1)))
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"code": found.Code().String(), "message": found.Message(), "header": header, "trailer": stream.Trailer(),
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
