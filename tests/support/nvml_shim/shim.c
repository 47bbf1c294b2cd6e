/* A libnvidia-ml.so.1 that answers from a description of a machine instead of a driver.
 *
 * Compiled against NVIDIA's own nvml.h, so that prototypes, structures, versions and constants are the compiler's business.
 * Functions that are not here are missing as in an old driver. The description is text, one fact a line (see machine.py):
 *
 *   driver VERSION
 *   gpu INDEX key=value ...       uuid bus module mig name memory links version recovery pending failed nodes minor
 *   link GPU LINK active=0|1 type=N bus=ID
 *   pair A B level=N p2p=READ,WRITE,NVLINK,ATOMICS,PCI   a negative number: the error of that code
 *   fabric GPU state=N status=N uuid=HEX clique=N mask=N
 *   fail FUNCTION GPU LINK CODE   -1 for any GPU or link
 *
 * It is read at nvmlInit from the file named by KOMPAKT_NVML_MACHINE, or set before by shim_describe. The shim_ functions
 * are for tests: counting calls and making things happen.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <errno.h>
#include <nvml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 32
#define NAME_BYTES 64
#define MAX_FAILS 4096
#define MAX_COUNTED 64
#define MAX_EVENTS 64

struct link { int present, active, type; char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; };
struct gpu {
    int present, has_module, module, mig, links, version, recovery, pending, failed, minor, has_fabric, busy;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE], name[NAME_BYTES];
    unsigned long long memory;
    unsigned long nodes;
    struct link link[NVML_NVLINK_MAX_LINKS];
    nvmlGpuFabricInfo_v2_t fabric;
};
struct pair { int level, p2p[NVML_P2P_CAPS_INDEX_UNKNOWN]; };
struct fail { char function[NAME_BYTES]; int gpu, link, code; };
struct counted { char function[NAME_BYTES]; int calls; };

static struct gpu gpus[GPUS];
static struct pair pairs[GPUS][GPUS];
static struct fail fails[MAX_FAILS];
static struct counted counts[MAX_COUNTED];
static nvmlEventData_t queue[MAX_EVENTS];
static unsigned long long listening[GPUS]; /* kinds of events registered for; outlives a new description */
static int described, running, gpu_count, fail_count, counted, queued;
static char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;

/* ---- the description ---- */

static const char *value(const char *line, const char *key, char *out, size_t size) {
    char wanted[NAME_BYTES];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = strstr(line, wanted);
    if (!found) return NULL;
    found += strlen(wanted);
    size_t length = strcspn(found, " \n");
    snprintf(out, size, "%.*s", (int)length, found);
    return out;
}

static long long number(const char *line, const char *key, long long otherwise) {
    char text[NAME_BYTES];
    return value(line, key, text, sizeof text) ? strtoll(text, NULL, 0) : otherwise;
}

static void read_gpu(int i, const char *line) {
    struct gpu *g = &gpus[i];
    char text[NAME_BYTES];
    g->present = 1;
    g->has_module = value(line, "module", text, sizeof text) != NULL;
    g->module = number(line, "module", 0);
    g->mig = number(line, "mig", -1);
    g->links = number(line, "links", -1);
    g->version = number(line, "version", -1);
    g->recovery = number(line, "recovery", -1);
    g->pending = number(line, "pending", 0);
    g->failed = number(line, "failed", 0);
    g->minor = number(line, "minor", i);
    g->nodes = number(line, "nodes", 0);
    g->memory = number(line, "memory", 0);
    value(line, "uuid", g->uuid, sizeof g->uuid);
    value(line, "bus", g->bus, sizeof g->bus);
    if (value(line, "name", g->name, sizeof g->name))
        for (char *c = g->name; *c; c++) if (*c == '_') *c = ' ';
    if (i >= gpu_count) gpu_count = i + 1;
}

static void read_link(int i, int l, const char *line) {
    struct link *k = &gpus[i].link[l];
    k->present = 1;
    k->active = number(line, "active", 1);
    k->type = number(line, "type", NVML_NVLINK_DEVICE_TYPE_GPU);
    value(line, "bus", k->bus, sizeof k->bus);
}

static void read_pair(int a, int b, const char *line) {
    struct pair p = {.level = number(line, "level", NVML_TOPOLOGY_SYSTEM)};
    char text[NAME_BYTES];
    if (value(line, "p2p", text, sizeof text))
        sscanf(text, "%d,%d,%d,%d,%d", &p.p2p[0], &p.p2p[1], &p.p2p[2], &p.p2p[3], &p.p2p[4]);
    pairs[a][b] = pairs[b][a] = p;
}

static void read_fabric(int i, const char *line) {
    nvmlGpuFabricInfo_v2_t *f = &gpus[i].fabric;
    char text[NAME_BYTES];
    gpus[i].has_fabric = 1;
    f->state = number(line, "state", NVML_GPU_FABRIC_STATE_COMPLETED);
    f->status = number(line, "status", NVML_SUCCESS);
    f->cliqueId = number(line, "clique", 0);
    f->healthMask = number(line, "mask", 0);
    if (value(line, "uuid", text, sizeof text))
        for (int n = 0; n < NVML_GPU_FABRIC_UUID_LEN; n++) sscanf(text + 2 * n, "%2hhx", &f->clusterUuid[n]);
}

static void read_line(const char *line) {
    int a, b;
    struct fail f;
    if (sscanf(line, "driver %79s", driver) == 1) return;
    if (sscanf(line, "fail %63s %d %d %d", f.function, &f.gpu, &f.link, &f.code) == 4) {
        if (fail_count < MAX_FAILS) fails[fail_count++] = f;
    } else if (sscanf(line, "gpu %d", &a) == 1 && a >= 0 && a < GPUS) read_gpu(a, line);
    else if (sscanf(line, "link %d %d", &a, &b) == 2 && a >= 0 && a < GPUS && b >= 0 && b < NVML_NVLINK_MAX_LINKS) read_link(a, b, line);
    else if (sscanf(line, "pair %d %d", &a, &b) == 2 && a >= 0 && a < GPUS && b >= 0 && b < GPUS) read_pair(a, b, line);
    else if (sscanf(line, "fabric %d", &a) == 1 && a >= 0 && a < GPUS) read_fabric(a, line);
    else if (line[0] && line[0] != '#') { /* a typo must not turn a test green: no machine at all */
        fprintf(stderr, "nvml shim: cannot read the line: %s\n", line);
        abort();
    }
}

void shim_describe(const char *text) {
    pthread_mutex_lock(&mutex);
    memset(gpus, 0, sizeof gpus), memset(pairs, 0, sizeof pairs);
    gpu_count = fail_count = 0, described = 1;
    char *copy = strdup(text), *rest = copy, *line;
    while ((line = strsep(&rest, "\n"))) read_line(line);
    free(copy);
    pthread_mutex_unlock(&mutex);
}

static int read_file(const char *path) {
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    static char text[1 << 20];
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    shim_describe(text);
    return 1;
}

/* ---- for tests ---- */

int shim_calls(const char *function) {
    int total = 0;
    for (int i = 0; i < counted; i++)
        if (!function[0] || !strcmp(counts[i].function, function)) total += counts[i].calls;
    return total;
}

void shim_forget_calls(void) { counted = 0; }

void shim_busy(int gpu, int processes) { gpus[gpu].busy = processes; }

void shim_event(int gpu, unsigned long long type, unsigned long long data) {
    pthread_mutex_lock(&mutex);
    if (queued < MAX_EVENTS && (listening[gpu] & type))
        queue[queued++] = (nvmlEventData_t){.device = (nvmlDevice_t)&gpus[gpu], .eventType = type, .eventData = data};
    pthread_cond_broadcast(&arrived);
    pthread_mutex_unlock(&mutex);
}

/* ---- what every function does first: count, look for a failure that was asked for ---- */

static nvmlReturn_t begin(const char *function, int gpu, int link) {
    int i = 0;
    while (i < counted && strcmp(counts[i].function, function)) i++;
    if (i == counted && counted < MAX_COUNTED) snprintf(counts[counted++].function, NAME_BYTES, "%s", function), counts[i].calls = 0;
    counts[i].calls++;
    if (!running) return NVML_ERROR_UNINITIALIZED;
    for (int f = 0; f < fail_count; f++)
        if ((!strcmp(fails[f].function, function) || !strcmp(fails[f].function, "*")) &&
            (fails[f].gpu < 0 || fails[f].gpu == gpu) && (fails[f].link < 0 || fails[f].link == link))
            return fails[f].code;
    return NVML_SUCCESS;
}

static int index_of(nvmlDevice_t device) {
    struct gpu *g = (struct gpu *)device;
    return g >= gpus && g < gpus + GPUS && g->present ? (int)(g - gpus) : -1;
}

#define BEGIN(gpu, link) do { nvmlReturn_t bad = begin(__func__, gpu, link); if (bad != NVML_SUCCESS) return bad; } while (0)
#define GPU(device) \
    int i = index_of(device); BEGIN(i, -1); if (i < 0) return NVML_ERROR_INVALID_ARGUMENT; struct gpu *g = &gpus[i]
#define LINK(device, l) \
    int i = index_of(device); BEGIN(i, l); if (i < 0 || (l) >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT; \
    if (!gpus[i].link[l].present) return gpus[i].links > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED; \
    struct link *k = &gpus[i].link[l]
#define TEXT(target, size, text) do { if (strlen(text) >= (size)) return NVML_ERROR_INSUFFICIENT_SIZE; strcpy(target, text); } while (0)

/* ---- NVML ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    const char *path = getenv("KOMPAKT_NVML_MACHINE");
    if (!described && !read_file(path)) return NVML_ERROR_DRIVER_NOT_LOADED;
    running++;
    nvmlReturn_t bad = begin(__func__, -1, -1);
    if (bad != NVML_SUCCESS) running--;
    return bad;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    BEGIN(-1, -1);
    running--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static char text[NAME_BYTES];
    snprintf(text, sizeof text, "error %d", result);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    BEGIN(-1, -1);
    TEXT(version, length, driver);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    BEGIN(-1, -1);
    *count = gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    BEGIN((int)index, -1);
    if (index >= (unsigned)gpu_count) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&gpus[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    int i = 0;
    while (i < gpu_count && strcmp(gpus[i].uuid, uuid)) i++;
    BEGIN(i, -1);
    if (i == gpu_count) return NVML_ERROR_NOT_FOUND;
    *device = (nvmlDevice_t)&gpus[i];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    GPU(device);
    TEXT(uuid, length, g->uuid);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    GPU(device);
    TEXT(name, length, g->name);
    return NVML_SUCCESS;
}

static void fill_pci(nvmlPciInfo_t *pci, const char *bus) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus);
    sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    GPU(device);
    fill_pci(pci, g->bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    GPU(device);
    *memory = (nvmlMemory_t){.total = g->memory, .free = g->memory};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    GPU(device);
    *minor = g->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module) {
    GPU(device);
    if (!g->has_module) return NVML_ERROR_NOT_SUPPORTED;
    *module = g->module;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes, nvmlAffinityScope_t scope) {
    GPU(device);
    if (!g->nodes || scope != NVML_AFFINITY_SCOPE_NODE) return NVML_ERROR_NOT_SUPPORTED;
    memset(nodes, 0, size * sizeof *nodes);
    nodes[0] = g->nodes;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    GPU(device);
    if (g->mig < 0) return NVML_ERROR_NOT_SUPPORTED;
    *now = *pending = g->mig;
    return NVML_SUCCESS;
}

static int field(const struct gpu *g, unsigned int id) {
    switch (id) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT: return g->links;
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: return g->recovery;
    case NVML_FI_DEV_REMAPPED_PENDING: return g->pending;
    case NVML_FI_DEV_REMAPPED_FAILURE: return g->failed;
    default: return -1;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    GPU(device);
    for (int n = 0; n < count; n++) {
        int found = field(g, values[n].fieldId);
        values[n].nvmlReturn = found < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        values[n].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[n].value.uiVal = found < 0 ? 0 : found;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    LINK(device, link);
    *active = k->active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
    LINK(device, link);
    *type = k->type;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    LINK(device, link);
    fill_pci(pci, k->bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    LINK(device, link);
    (void)k;
    if (gpus[i].version < 0) return NVML_ERROR_NOT_SUPPORTED;
    *version = gpus[i].version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuTopologyLevel_t *level) {
    GPU(first);
    int j = index_of(second);
    if (j < 0 || !g) return NVML_ERROR_INVALID_ARGUMENT;
    if (pairs[i][j].level < 0) return (nvmlReturn_t)-pairs[i][j].level;
    *level = pairs[i][j].level;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t caps, nvmlGpuP2PStatus_t *status) {
    GPU(first);
    int j = index_of(second);
    if (j < 0 || !g || caps < 0 || caps >= NVML_P2P_CAPS_INDEX_UNKNOWN) return NVML_ERROR_INVALID_ARGUMENT;
    if (pairs[i][j].p2p[caps] < 0) return (nvmlReturn_t)-pairs[i][j].p2p[caps];
    *status = pairs[i][j].p2p[caps];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    GPU(device);
    if (!g->has_fabric) return NVML_ERROR_NOT_SUPPORTED;
    if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int version = info->version;
    memcpy(info, &g->fabric, sizeof g->fabric); /* version 3 is version 2 with one field more at its end */
    info->version = version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    GPU(device);
    if (!g->has_fabric) return NVML_ERROR_NOT_SUPPORTED;
    memcpy(info->clusterUuid, g->fabric.clusterUuid, sizeof info->clusterUuid);
    info->status = g->fabric.status, info->cliqueId = g->fabric.cliqueId, info->state = g->fabric.state;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes) {
    GPU(device);
    if ((unsigned)g->busy > *count) return *count = g->busy, NVML_ERROR_INSUFFICIENT_SIZE;
    for (int n = 0; n < g->busy; n++) processes[n] = (nvmlProcessInfo_t){.pid = 1000 + n};
    *count = g->busy;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    GPU(device);
    (void)g;
    *types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeSingleBitEccError | nvmlEventTypeClock;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    BEGIN(-1, -1);
    *set = (nvmlEventSet_t)queue;
    memset(listening, 0, sizeof listening);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    GPU(device);
    (void)set, (void)g;
    listening[i] = types;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
    (void)set;
    BEGIN(-1, -1);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000, until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&mutex);
    while (!queued && result == NVML_SUCCESS)
        if (pthread_cond_timedwait(&arrived, &mutex, &until) == ETIMEDOUT) result = NVML_ERROR_TIMEOUT;
    if (queued) {
        *data = queue[0];
        memmove(queue, queue + 1, --queued * sizeof *queue);
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    (void)set;
    BEGIN(-1, -1);
    return NVML_SUCCESS;
}
