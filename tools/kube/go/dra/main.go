// The driver of a node's GPUs for dynamic resource allocation, as the tests run it: Kubernetes' own test driver, which by itself
// publishes devices without attributes. Here each device has the UUID of a GPU, under the name that NVIDIA's driver gives it.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubernetes/test/e2e/dra/test-driver/app"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("node", "", "the node's name")
	driver := flag.String("driver", "gpu.nvidia.com", "the driver's name")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "kubelet's folder")
	cdi := flag.String("cdi-dir", "/var/run/cdi", "where CDI specifications are written")
	devices := flag.String("devices", "", "NAME=UUID or NAME=UUID=PARENT, comma-separated; PARENT is the GPU that a partition is of")
	kind := flag.String("cdi-kind", "", "kind of CDI devices, named by UUID, that containers get beside those of the test driver")
	version := flag.Bool("version", false, "print the version of Kubernetes whose test driver this is")
	flag.Parse()
	log.SetFlags(0)
	if *version {
		log.Print(pinned())
		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	slice := resourceslice.Slice{Devices: published(*devices)}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{*node: {Slices: []resourceslice.Slice{slice}}}}
	plugin, err := app.StartPlugin(ctx, *cdi, *driver, client, *node, app.FileOperations{DriverResources: &resources}, app.Options{},
		kubeletplugin.GRPCInterceptor(withFiles(*kind, slice.Devices)),
		kubeletplugin.PluginDataDirectoryPath(filepath.Join(*kubelet, "plugins", *driver)),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubelet, "plugins_registry")))
	if err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
	plugin.Stop()
}

// withFiles adds the CDI device of each GPU to what is answered to kubelet. The test driver itself shows a container nothing but a
// variable.
func withFiles(kind string, devices []resourceapi.Device) grpc.UnaryServerInterceptor {
	names := map[string]string{}
	for _, one := range devices {
		names[one.Name] = kind + "=" + *one.Attributes["uuid"].StringValue
	}
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		answer, err := handler(ctx, request)
		if prepared, ok := answer.(*drapb.NodePrepareResourcesResponse); ok && kind != "" {
			for _, claim := range prepared.Claims {
				for _, device := range claim.Devices {
					device.CdiDeviceIds = append(device.CdiDeviceIds, names[device.DeviceName])
				}
			}
		}
		return answer, err
	}
}

func pinned() string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == "k8s.io/kubernetes" {
			return one.Version
		}
	}
	return "unknown"
}

func published(text string) []resourceapi.Device {
	found := []resourceapi.Device{}
	for _, one := range strings.Split(text, ",") {
		parts := strings.Split(one, "=")
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: &parts[1]}}
		if len(parts) > 2 {
			attributes["parentUUID"] = resourceapi.DeviceAttribute{StringValue: &parts[2]}
		}
		found = append(found, resourceapi.Device{Name: parts[0], Attributes: attributes})
	}
	return found
}
