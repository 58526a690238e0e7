// What the provider uses of onnxruntime's C interface, declared from its published order.
//
// The interface only grows at its end: a function keeps its place in the table, a field its place in a struct. So the
// tables are read by index, and what the provider fills in says which version of the structs it knows.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtStatus;
struct OrtValue;
struct OrtTypeInfo;
struct OrtTensorTypeAndShapeInfo;
struct OrtOpAttr;
struct OrtLogger;
struct OrtSessionOptions;
struct OrtKernelContext;
struct OrtKeyValuePairs;
struct OrtHardwareDevice;
struct OrtEpDevice;
struct OrtGraph;
struct OrtNode;
struct OrtValueInfo;
struct OrtNodeComputeContext;
struct OrtEpGraphSupportInfo;
struct OrtEp;
struct OrtEpFactory;
struct OrtProfilingEvent;
struct OrtProfilingEventsContainer;
struct OrtEpProfilerImpl;

namespace tw {

// The oldest version that runs compiled subgraphs of a plugin; asked for, so that newer ones behave like it.
constexpr uint32_t API_VERSION = 23;
// The version of providers' own spans in a session's profile; known to the provider where onnxruntime has it.
constexpr uint32_t PROFILING_VERSION = 25;

using Table = void *const *;

struct OrtApiBase {
    Table (*GetApi)(uint32_t version);
    const char *(*GetVersionString)();
};

enum ErrorCode : int { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_EP_FAIL = 11 };
enum LogLevel : int { LOG_INFO = 1, LOG_WARNING = 2 };
enum AttributeType : int { ATTR_INT = 1, ATTR_INTS, ATTR_FLOAT, ATTR_FLOATS, ATTR_STRING, ATTR_STRINGS, ATTR_GRAPH, ATTR_TENSOR };
enum Compatibility : int { NOT_APPLICABLE, OPTIMAL, PREFER_RECOMPILATION, UNSUPPORTED };

constexpr int ONNX_TENSOR = 1;        // OnnxType
constexpr int ELEMENT_STRING = 8;     // element type
constexpr int HARDWARE_CPU = 0;       // hardware device type
constexpr int EVENT_KERNEL = 2;       // category of profiling event

// index in the table, result, name, arguments
#define TW_ORT_API(F)                                                                                              \
    F(0, OrtStatus *, CreateStatus, (int code, const char *message))                                               \
    F(2, const char *, GetErrorMessage, (const OrtStatus *))                                                       \
    F(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **))                                                \
    F(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **))        \
    F(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *, int *))                                      \
    F(60, OrtStatus *, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *, int *))                           \
    F(61, OrtStatus *, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo *, size_t *))                          \
    F(62, OrtStatus *, GetDimensions, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t))                      \
    F(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorTypeAndShapeInfo **))                    \
    F(88, OrtStatus *, KernelContext_GetInputCount, (const OrtKernelContext *, size_t *))                          \
    F(89, OrtStatus *, KernelContext_GetOutputCount, (const OrtKernelContext *, size_t *))                         \
    F(90, OrtStatus *, KernelContext_GetInput, (const OrtKernelContext *, size_t, const OrtValue **))              \
    F(91, OrtStatus *, KernelContext_GetOutput,                                                                    \
      (OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **))                                          \
    F(93, void, ReleaseStatus, (OrtStatus *))                                                                      \
    F(96, void, ReleaseValue, (OrtValue *))                                                                        \
    F(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo *))                                      \
    F(211, OrtStatus *, CreateOpAttr, (const char *, const void *, int, int type, OrtOpAttr **))                   \
    F(212, void, ReleaseOpAttr, (OrtOpAttr *))                                                                     \
    F(247, OrtStatus *, Logger_LogMessage,                                                                         \
      (const OrtLogger *, int level, const char *message, const char *file, int line, const char *function))       \
    F(272, OrtStatus *, ReadOpAttr, (const OrtOpAttr *, int type, void *, size_t, size_t *))                       \
    F(289, OrtStatus *, GetValueInfoName, (const OrtValueInfo *, const char **))                                   \
    F(290, OrtStatus *, GetValueInfoTypeInfo, (const OrtValueInfo *, const OrtTypeInfo **))                        \
    F(291, Table, GetModelEditorApi, ())                                                                           \
    F(295, void, CreateKeyValuePairs, (OrtKeyValuePairs **))                                                       \
    F(296, void, AddKeyValuePair, (OrtKeyValuePairs *, const char *, const char *))                                \
    F(298, void, GetKeyValuePairs, (const OrtKeyValuePairs *, const char *const **, const char *const **, size_t *)) \
    F(300, void, ReleaseKeyValuePairs, (OrtKeyValuePairs *))                                                       \
    F(307, int, HardwareDevice_Type, (const OrtHardwareDevice *))                                                  \
    F(317, Table, GetEpApi, ())                                                                                    \
    F(318, OrtStatus *, GetTensorSizeInBytes, (const OrtValue *, size_t *))                                        \
    F(326, OrtStatus *, ValueInfo_GetInitializerValue, (const OrtValueInfo *, const OrtValue **))                  \
    F(331, OrtStatus *, ValueInfo_IsConstantInitializer, (const OrtValueInfo *, bool *))                           \
    F(334, OrtStatus *, Graph_GetModelPath, (const OrtGraph *, const char **))                                     \
    F(335, OrtStatus *, Graph_GetOnnxIRVersion, (const OrtGraph *, int64_t *))                                     \
    F(336, OrtStatus *, Graph_GetNumOperatorSets, (const OrtGraph *, size_t *))                                    \
    F(337, OrtStatus *, Graph_GetOperatorSets, (const OrtGraph *, const char **, int64_t *, size_t))               \
    F(338, OrtStatus *, Graph_GetNumInputs, (const OrtGraph *, size_t *))                                          \
    F(339, OrtStatus *, Graph_GetInputs, (const OrtGraph *, const OrtValueInfo **, size_t))                        \
    F(340, OrtStatus *, Graph_GetNumOutputs, (const OrtGraph *, size_t *))                                         \
    F(341, OrtStatus *, Graph_GetOutputs, (const OrtGraph *, const OrtValueInfo **, size_t))                       \
    F(344, OrtStatus *, Graph_GetNumNodes, (const OrtGraph *, size_t *))                                           \
    F(345, OrtStatus *, Graph_GetNodes, (const OrtGraph *, const OrtNode **, size_t))                              \
    F(346, OrtStatus *, Graph_GetParentNode, (const OrtGraph *, const OrtNode **))                                 \
    F(349, OrtStatus *, Node_GetName, (const OrtNode *, const char **))                                            \
    F(350, OrtStatus *, Node_GetOperatorType, (const OrtNode *, const char **))                                    \
    F(351, OrtStatus *, Node_GetDomain, (const OrtNode *, const char **))                                          \
    F(353, OrtStatus *, Node_GetNumInputs, (const OrtNode *, size_t *))                                            \
    F(354, OrtStatus *, Node_GetInputs, (const OrtNode *, const OrtValueInfo **, size_t))                          \
    F(355, OrtStatus *, Node_GetNumOutputs, (const OrtNode *, size_t *))                                           \
    F(356, OrtStatus *, Node_GetOutputs, (const OrtNode *, const OrtValueInfo **, size_t))                         \
    F(357, OrtStatus *, Node_GetNumImplicitInputs, (const OrtNode *, size_t *))                                    \
    F(358, OrtStatus *, Node_GetImplicitInputs, (const OrtNode *, const OrtValueInfo **, size_t))                  \
    F(359, OrtStatus *, Node_GetNumAttributes, (const OrtNode *, size_t *))                                        \
    F(360, OrtStatus *, Node_GetAttributes, (const OrtNode *, const OrtOpAttr **, size_t))                         \
    F(361, OrtStatus *, Node_GetAttributeByName, (const OrtNode *, const char *, const OrtOpAttr **))              \
    F(362, OrtStatus *, OpAttr_GetTensorAttributeAsOrtValue, (const OrtOpAttr *, OrtValue **))                     \
    F(363, OrtStatus *, OpAttr_GetType, (const OrtOpAttr *, int *))                                                \
    F(364, OrtStatus *, OpAttr_GetName, (const OrtOpAttr *, const char **))                                        \
    F(365, OrtStatus *, Node_GetNumSubgraphs, (const OrtNode *, size_t *))                                         \
    F(368, OrtStatus *, Node_GetEpName, (const OrtNode *, const char **))                                          \
    F(378, OrtStatus *, GetTensorData, (const OrtValue *, const void **))                                          \
    F(379, OrtStatus *, GetSessionOptionsConfigEntries, (const OrtSessionOptions *, OrtKeyValuePairs **))

// Of the table that GetEpApi returns.
struct FusionOptions {
    uint32_t version;
    bool drop_constant_initializers;
};
#define TW_EP_API(F)                                                                                               \
    F(0, OrtStatus *, CreateEpDevice,                                                                              \
      (OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options, \
       OrtEpDevice **))                                                                                            \
    F(2, OrtStatus *, EpGraphSupportInfo_AddNodesToFuse,                                                           \
      (OrtEpGraphSupportInfo *, const OrtNode *const *, size_t, const FusionOptions *))                            \
    F(4, const char *, NodeComputeContext_NodeName, (const OrtNodeComputeContext *))

// The same table from version 25 on.
#define TW_PROFILING_API(F)                                                                                        \
    F(65, OrtStatus *, CreateProfilingEvent,                                                                       \
      (int category, int32_t process, int32_t thread, const char *name, int64_t start_us, int64_t duration_us,     \
       const char *const *keys, const char *const *values, size_t, OrtProfilingEvent **))                          \
    F(66, void, ReleaseProfilingEvent, (OrtProfilingEvent *))                                                      \
    F(72, OrtStatus *, ProfilingEventsContainer_AddEvents,                                                         \
      (OrtProfilingEventsContainer *, const OrtProfilingEvent *const *, size_t))

// Of the table that GetModelEditorApi returns.
#define TW_MODEL_EDITOR_API(F)                                                                                     \
    F(6, OrtStatus *, CreateNode,                                                                                  \
      (const char *op, const char *domain, const char *name, const char *const *inputs, size_t,                    \
       const char *const *outputs, size_t, OrtOpAttr **, size_t, OrtNode **))

#define TW_DECLARE(INDEX, RESULT, NAME, ARGUMENTS) RESULT(*NAME) ARGUMENTS = nullptr;
#define TW_FILL(INDEX, RESULT, NAME, ARGUMENTS) NAME = reinterpret_cast<decltype(NAME)>(table[INDEX]);
#define TW_TABLE(CLASS, FUNCTIONS)                              \
    struct CLASS {                                              \
        FUNCTIONS(TW_DECLARE)                                   \
        CLASS() = default;                                      \
        explicit CLASS(Table table) { FUNCTIONS(TW_FILL) }      \
    };
TW_TABLE(OrtApi, TW_ORT_API)
TW_TABLE(EpApi, TW_EP_API)
TW_TABLE(ProfilingApi, TW_PROFILING_API)
TW_TABLE(ModelEditorApi, TW_MODEL_EDITOR_API)
#undef TW_TABLE
#undef TW_FILL
#undef TW_DECLARE

}  // namespace tw

// What the provider hands over: its own functions, in this order. Fields beyond version 23 are null, and `later` keeps
// room for those that newer versions have, so that a reader never looks past the end.

struct OrtNodeComputeInfo {
    uint32_t version = tw::API_VERSION;
    OrtStatus *(*CreateState)(OrtNodeComputeInfo *, OrtNodeComputeContext *, void **state) = nullptr;
    OrtStatus *(*Compute)(OrtNodeComputeInfo *, void *state, OrtKernelContext *) = nullptr;
    void (*ReleaseState)(OrtNodeComputeInfo *, void *state) = nullptr;
};

struct OrtEpProfilerImpl {
    uint32_t version = tw::PROFILING_VERSION;
    void (*Release)(OrtEpProfilerImpl *) = nullptr;
    OrtStatus *(*StartProfiling)(OrtEpProfilerImpl *, int64_t since_start_ns) = nullptr;
    OrtStatus *(*StartEvent)(OrtEpProfilerImpl *, uint64_t) = nullptr;
    OrtStatus *(*StopEvent)(OrtEpProfilerImpl *, uint64_t, const OrtProfilingEvent *) = nullptr;
    OrtStatus *(*EndProfiling)(OrtEpProfilerImpl *, OrtProfilingEventsContainer *) = nullptr;
};

struct OrtEp {
    uint32_t version = tw::API_VERSION;
    const char *(*GetName)(const OrtEp *) = nullptr;
    OrtStatus *(*GetCapability)(OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *) = nullptr;
    OrtStatus *(*Compile)(OrtEp *, const OrtGraph **, const OrtNode **fused, size_t count, OrtNodeComputeInfo **,
                          OrtNode **contexts) = nullptr;
    void (*ReleaseNodeComputeInfos)(OrtEp *, OrtNodeComputeInfo **, size_t) = nullptr;
    void *layout[2] = {};  // GetPreferredDataLayout, ShouldConvertDataLayoutForOp
    void *SetDynamicOptions = nullptr;
    void *runs[2] = {};    // OnRunStart, OnRunEnd
    void *memory[2] = {};  // CreateAllocator, CreateSyncStreamForDevice
    const char *(*GetCompiledModelCompatibilityInfo)(OrtEp *, const OrtGraph *) = nullptr;
    void *since_24[3] = {};  // GetKernelRegistry, IsConcurrentRunSupported, Sync
    OrtStatus *(*CreateProfiler)(OrtEp *, OrtEpProfilerImpl **) = nullptr;
    void *later[20] = {};
};

struct OrtEpFactory {
    uint32_t version = tw::API_VERSION;
    const char *(*GetName)(const OrtEpFactory *) = nullptr;
    const char *(*GetVendor)(const OrtEpFactory *) = nullptr;
    OrtStatus *(*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t, OrtEpDevice **,
                                      size_t most, size_t *found) = nullptr;
    OrtStatus *(*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *, const OrtKeyValuePairs *const *, size_t,
                           const OrtSessionOptions *, const OrtLogger *, OrtEp **) = nullptr;
    void (*ReleaseEp)(OrtEpFactory *, OrtEp *) = nullptr;
    uint32_t (*GetVendorId)(const OrtEpFactory *) = nullptr;
    const char *(*GetVersion)(const OrtEpFactory *) = nullptr;
    OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t,
                                                         const char *info, int *found) = nullptr;
    OrtStatus *(*CreateAllocator)(OrtEpFactory *, const void *, const OrtKeyValuePairs *, void **) = nullptr;
    void (*ReleaseAllocator)(OrtEpFactory *, void *) = nullptr;
    OrtStatus *(*CreateDataTransfer)(OrtEpFactory *, void **) = nullptr;
    bool (*IsStreamAware)(const OrtEpFactory *) = nullptr;
    OrtStatus *(*CreateSyncStreamForDevice)(OrtEpFactory *, const void *, const OrtKeyValuePairs *, void **) = nullptr;
    void *later[24] = {};
};
