// Compiled programs in models: nodes EPContext of the domain com.microsoft, as onnxruntime defines them. A node holds
// the program itself, or the name of a file beside the model.
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "runtime.h"
#include "texts.h"

namespace tw {

constexpr char PROVIDER[] = "TilewrightExecutionProvider";

// What the session wants of contexts.
struct ContextOptions {
    bool write = false;  // ep.context_enable
    bool embed = false;  // ep.context_embed_mode
    std::string path;    // ep.context_file_path
};

class Contexts {
  public:
    Contexts(const Runtime &runtime, ContextOptions options) : r_(runtime), options_(std::move(options)) {}

    bool is_ours(const OrtNode *node) const {
        return r_.text(r_.api.Node_GetOperatorType, node) == "EPContext" &&
               r_.text(r_.api.Node_GetDomain, node) == "com.microsoft" && r_.string_attribute(node, "source") == PROVIDER;
    }

    // What a node holds: the context, or the path of the file with it. Throws Failure.
    std::pair<std::string, std::string> read(const OrtGraph *graph, const OrtNode *node) const {
        std::string content = r_.string_attribute(node, "ep_cache_context");
        if (embedded(node)) return {content, ""};
        std::string where = folder(r_.get(r_.api.Graph_GetModelPath, graph)) + content;
        if (content.empty() || content.find('/') != std::string::npos)
            throw Failure{"the context of " + r_.text(r_.api.Node_GetName, node) + " is in '" + content +
                          "', which is not the name of a file beside the model"};
        char *whole = ::realpath(where.c_str(), nullptr);  // the compiler process has a working directory of its own
        if (whole == nullptr) throw Failure{"cannot read the context " + where + ": " + std::strerror(errno)};
        std::string found = whole;
        std::free(whole);
        return {"", found};
    }

    // A node that takes the place of a compiled one in the model that onnxruntime writes. Throws Failure.
    OrtNode *node(const OrtGraph *graph, const OrtNode *fused, const std::string &context) const {
        std::string name = r_.text(r_.api.Node_GetName, fused), content = context;
        if (!options_.embed) {
            std::string model = options_.path.empty() ? r_.get(r_.api.Graph_GetModelPath, graph) : options_.path;
            content = name + ".twctx";
            std::string where = folder(model) + content;
            std::ofstream file(where, std::ios::binary);
            file.write(context.data(), std::streamsize(context.size()));
            file.close();
            if (!file) throw Failure{"cannot write the context " + where};
        }
        Attributes attributes{r_};
        attributes.add("main_context", 1);
        attributes.add("embed_mode", options_.embed);
        attributes.add("ep_cache_context", content);
        attributes.add("source", PROVIDER);
        attributes.add("ep_sdk_version", own_version());
        attributes.add("partition_name", name);
        std::vector<std::string> inputs = names(r_.list(r_.api.Node_GetNumInputs, r_.api.Node_GetInputs, fused));
        std::vector<std::string> outputs = names(r_.list(r_.api.Node_GetNumOutputs, r_.api.Node_GetOutputs, fused));
        std::vector<const char *> from = pointers(inputs), to = pointers(outputs);
        OrtNode *made = nullptr;
        r_.check(r_.editor.CreateNode("EPContext", "com.microsoft", name.c_str(), from.data(), from.size(), to.data(),
                                      to.size(), attributes.all.data(), attributes.all.size(), &made));
        return made;
    }

    const ContextOptions &options() const { return options_; }

  private:
    // Attributes that CreateNode copies.
    struct Attributes {
        const Runtime &r;
        std::vector<OrtOpAttr *> all = {};
        void add(const char *name, int64_t value) { add(name, &value, 1, ATTR_INT); }
        void add(const char *name, const std::string &value) { add(name, value.data(), value.size(), ATTR_STRING); }
        void add(const char *name, const void *data, size_t size, int type) {
            if (size > INT32_MAX) throw Failure{"a context of 2 GB or more goes into no node; use ep.context_embed_mode 0"};
            all.push_back(nullptr);
            r.check(r.api.CreateOpAttr(name, data, int(size), type, &all.back()));
        }
        ~Attributes() {
            for (OrtOpAttr *attribute : all)
                if (attribute) r.api.ReleaseOpAttr(attribute);
        }
    };

    bool embedded(const OrtNode *node) const {
        const OrtOpAttr *found = nullptr;
        if (OrtStatus *status = r_.api.Node_GetAttributeByName(node, "embed_mode", &found)) r_.api.ReleaseStatus(status);
        int64_t value = 1;  // as the operator's schema has it
        size_t size = 0;
        if (found) r_.check(r_.api.ReadOpAttr(found, ATTR_INT, &value, sizeof value, &size));
        return value != 0;
    }

    static std::string folder(const std::string &model) {
        size_t slash = model.rfind('/');
        return slash == std::string::npos ? "" : model.substr(0, slash + 1);
    }

    std::vector<std::string> names(const std::vector<const OrtValueInfo *> &values) const {
        std::vector<std::string> found;
        for (const OrtValueInfo *value : values) found.push_back(r_.name(value));
        return found;
    }

    static std::vector<const char *> pointers(const std::vector<std::string> &texts) {
        std::vector<const char *> found;
        for (const std::string &text : texts) found.push_back(text.c_str());
        return found;
    }

    const Runtime &r_;
    ContextOptions options_;
};

}  // namespace tw
