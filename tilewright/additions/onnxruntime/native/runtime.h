// onnxruntime as the provider finds it: its tables, and its errors as exceptions within the provider.
#pragma once

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "ort_api.h"

namespace tw {

// What a user is told, as one line. Never leaves the provider: `guarded` makes a status of it.
struct Failure {
    std::string message;
    int code = ORT_EP_FAIL;
};

struct Runtime {
    OrtApi api;
    EpApi ep;
    ModelEditorApi editor;
    bool (*has_shape)(const OrtTensorTypeAndShapeInfo *) = nullptr;  // since 1.24
    bool profiles = false;  // `profiling` is there
    ProfilingApi profiling;
    bool shares = true;  // values go between a plugin's nodes and others; not so in the first release with plugins

    Runtime() = default;

    // Throws Failure for an onnxruntime that is too old.
    explicit Runtime(const OrtApiBase &base) {
        std::string found = base.GetVersionString();
        size_t dot = found.find('.');
        int major = std::atoi(found.c_str()), minor = dot == std::string::npos ? 0 : std::atoi(found.c_str() + dot + 1);
        bool newer = major > 1 || minor >= int(API_VERSION);
        Table table = newer ? base.GetApi(API_VERSION) : nullptr;
        if (table == nullptr)
            throw Failure{"Tilewright needs onnxruntime 1." + std::to_string(API_VERSION) + " or later, this is " + found};
        api = OrtApi(table);
        ep = EpApi(api.GetEpApi());
        editor = ModelEditorApi(api.GetModelEditorApi());
        profiles = major > 1 || minor >= int(PROFILING_VERSION);
        if (profiles) profiling = ProfilingApi(api.GetEpApi());
        shares = found != "1.23.0";
        if (major > 1 || minor >= 24) has_shape = reinterpret_cast<decltype(has_shape)>(table[390]);
    }

    // Throws what a function of onnxruntime reports.
    void check(OrtStatus *status) const {
        if (status == nullptr) return;
        Failure failure{api.GetErrorMessage(status)};
        api.ReleaseStatus(status);
        throw failure;
    }

    OrtStatus *status(const Failure &failure) const {
        return api.CreateStatus(failure.code, ("Tilewright: " + failure.message).c_str());
    }

    // Runs what onnxruntime called; whatever goes wrong becomes a status.
    template <class Body>
    OrtStatus *guarded(Body body) const noexcept {
        try {
            body();
            return nullptr;
        } catch (const Failure &failure) {
            return status(failure);
        } catch (const std::exception &error) {
            return status(Failure{error.what()});
        } catch (...) {
            return status(Failure{"an unknown error"});
        }
    }

    void log(const OrtLogger *logger, int level, const std::string &message) const noexcept {
        OrtStatus *status = api.Logger_LogMessage(logger, level, message.c_str(), "tilewright", 0, "provider");
        if (status != nullptr) api.ReleaseStatus(status);
    }

    // A list that onnxruntime hands out by two functions, one for its length and one for its elements.
    template <class Owner, class Element>
    std::vector<const Element *> list(OrtStatus *(*count)(const Owner *, size_t *),
                                      OrtStatus *(*fill)(const Owner *, const Element **, size_t),
                                      const Owner *owner) const {
        size_t size = 0;
        check(count(owner, &size));
        std::vector<const Element *> found(size);
        if (size) check(fill(owner, found.data(), size));
        return found;
    }

    // What a function tells of an object.
    template <class Result, class Owner, class... More>
    Result get(OrtStatus *(*function)(const Owner *, Result *), const Owner *owner) const {
        Result found{};
        check(function(owner, &found));
        return found;
    }

    std::string text(OrtStatus *(*function)(const OrtNode *, const char **), const OrtNode *node) const {
        const char *found = get(function, node);
        return found ? found : "";
    }

    // "" for an optional input or output that is left out.
    std::string name(const OrtValueInfo *value) const {
        const char *found = value ? get(api.GetValueInfoName, value) : nullptr;
        return found ? found : "";
    }

    bool is_constant(const OrtValueInfo *value) const {
        return value != nullptr && get(api.ValueInfo_IsConstantInitializer, value);
    }

    // Bytes of an attribute of a plain type; strings follow each other, each ended by a zero byte.
    std::string attribute(const OrtOpAttr *attribute, int type) const {
        size_t size = 0;
        if (OrtStatus *status = api.ReadOpAttr(attribute, type, nullptr, 0, &size)) api.ReleaseStatus(status);
        std::string found(size, '\0');
        if (size) check(api.ReadOpAttr(attribute, type, &found[0], size, &size));
        return found;
    }

    // A string attribute by name, "" where there is none.
    std::string string_attribute(const OrtNode *node, const char *name) const {
        const OrtOpAttr *found = nullptr;
        if (OrtStatus *status = api.Node_GetAttributeByName(node, name, &found)) {
            api.ReleaseStatus(status);
            return "";
        }
        if (found == nullptr || get(api.OpAttr_GetType, found) != ATTR_STRING) return "";
        return attribute(found, ATTR_STRING);
    }
};

}  // namespace tw
