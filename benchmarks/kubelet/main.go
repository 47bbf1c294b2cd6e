// Command kubelet asks a device plugin what kubelet asks it, over kubelet's own client, and says how long each answer took.
//
//	kubelet SOCKET
//
// First it prints the ids of ListAndWatch's first answer, and goes on listening. Then each line of standard input is one
// order, answered by one line: {"call": "prefer", "ids": [...], "size": 2}, {"call": "echo", "ids": [...]} (a call to which
// the plugin answers nothing) or {"call": "allocate", "ids": [...]} gives {"nanoseconds": 812345, "ids": [...]}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type order struct {
	Call string   `json:"call"`
	IDs  []string `json:"ids"`
	Size int32    `json:"size"`
}

type answer struct {
	Nanoseconds int64    `json:"nanoseconds"`
	IDs         []string `json:"ids"`
}

func main() {
	connection, err := grpc.NewClient("unix://"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	plugin := api.NewDevicePluginClient(connection)
	out := json.NewEncoder(os.Stdout)
	must(out.Encode(listen(plugin)))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked order
		must(json.Unmarshal(lines.Bytes(), &asked))
		must(out.Encode(timed(plugin, asked)))
	}
}

// listen keeps the stream open: a plugin to which nobody listens registers anew.
func listen(plugin api.DevicePluginClient) []string {
	stream, err := plugin.ListAndWatch(context.Background(), &api.Empty{})
	must(err)
	first, err := stream.Recv()
	must(err)
	go func() {
		for err == nil {
			_, err = stream.Recv()
		}
	}()
	ids := []string{}
	for _, device := range first.Devices {
		ids = append(ids, device.ID)
	}
	return ids
}

func timed(plugin api.DevicePluginClient, asked order) answer {
	began := time.Now()
	ids, err := call(plugin, asked)
	took := time.Since(began)
	must(err)
	return answer{took.Nanoseconds(), ids}
}

func call(plugin api.DevicePluginClient, asked order) ([]string, error) {
	bounded, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	switch asked.Call {
	case "prefer":
		one := &api.ContainerPreferredAllocationRequest{AvailableDeviceIDs: asked.IDs, AllocationSize: asked.Size}
		request := &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{one}}
		response, err := plugin.GetPreferredAllocation(bounded, request)
		if err != nil {
			return nil, err
		}
		return response.ContainerResponses[0].DeviceIDs, nil
	case "allocate":
		one := &api.ContainerAllocateRequest{DevicesIds: asked.IDs}
		_, err := plugin.Allocate(bounded, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{one}})
		return asked.IDs, err
	case "echo":
		_, err := plugin.PreStartContainer(bounded, &api.PreStartContainerRequest{DevicesIds: asked.IDs})
		return asked.IDs, err
	}
	return nil, fmt.Errorf("%q is no call; there are prefer, allocate, echo", asked.Call)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
