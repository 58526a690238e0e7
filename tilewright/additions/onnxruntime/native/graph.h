// A graph of onnxruntime as an ONNX model in bytes, which is what the compiler reads.
#pragma once

#include <set>
#include <utility>

#include "onnx_bytes.h"
#include "runtime.h"

namespace tw {

// The nodes of a graph in the order of the model, and why some are to be left alone, by their place.
struct Model {
    std::string bytes;
    std::vector<const OrtNode *> nodes;
    std::vector<std::pair<size_t, std::string>> left;
    bool given_away = true;  // every node has a provider
};

class GraphWriter {
  public:
    explicit GraphWriter(const Runtime &runtime) : r_(runtime) {}

    // The model of a graph with these inputs and outputs; constants are found through the nodes that read them.
    Model write(const OrtGraph *graph, const std::vector<const OrtValueInfo *> &inputs,
                const std::vector<const OrtValueInfo *> &outputs) {
        Model model;
        model.nodes = r_.list(r_.api.Graph_GetNumNodes, r_.api.Graph_GetNodes, graph);
        body_.text(field::GRAPH_NAME, std::string("onnxruntime"));
        for (const OrtValueInfo *value : inputs)
            if (!r_.is_constant(value)) body_.message(field::INPUT, described(value));
        for (const OrtValueInfo *value : outputs) body_.message(field::OUTPUT, described(value));
        for (size_t i = 0; i < model.nodes.size(); i++) {
            std::string reason = reason_against(model.nodes[i]);
            if (!reason.empty()) model.left.emplace_back(i, reason);
            model.given_away = model.given_away && !provider(model.nodes[i]).empty();
            node(model.nodes[i], reason.empty());
        }
        Message whole;
        whole.reserve(body_.bytes().size() + 1024);
        whole.integer(field::IR_VERSION, r_.get(r_.api.Graph_GetOnnxIRVersion, graph));
        whole.message(field::GRAPH, body_);
        opsets(graph, whole);
        model.bytes = whole.bytes();
        return model;
    }

  private:
    std::string provider(const OrtNode *node) const { return r_.text(r_.api.Node_GetEpName, node); }

    std::string reason_against(const OrtNode *node) const {
        std::string found = provider(node);
        if (!found.empty()) return "it is given to " + found + " already";
        if (r_.get(r_.api.Node_GetNumSubgraphs, node)) return "its bodies are graphs of their own";
        return "";
    }

    void opsets(const OrtGraph *graph, Message &whole) const {
        size_t count = r_.get(r_.api.Graph_GetNumOperatorSets, graph);
        std::vector<const char *> domains(count);
        std::vector<int64_t> versions(count);
        r_.check(r_.api.Graph_GetOperatorSets(graph, domains.data(), versions.data(), count));
        for (size_t i = 0; i < count; i++) {
            Message opset;
            opset.text(field::OPSET_DOMAIN, std::string(domains[i]));
            opset.integer(field::OPSET_VERSION, versions[i]);
            whole.message(field::OPSETS, opset);
        }
    }

    // With `whole`, attributes and constants as well; without, only what it reads and makes, bodies included.
    void node(const OrtNode *node, bool whole) {
        Message out;
        for (const OrtValueInfo *value : r_.list(r_.api.Node_GetNumInputs, r_.api.Node_GetInputs, node)) {
            out.text(field::NODE_INPUT, r_.name(value));
            if (whole && r_.is_constant(value)) constant(value);
        }
        if (!whole)
            for (const OrtValueInfo *value : r_.list(r_.api.Node_GetNumImplicitInputs, r_.api.Node_GetImplicitInputs, node))
                out.text(field::NODE_INPUT, r_.name(value));
        for (const OrtValueInfo *value : r_.list(r_.api.Node_GetNumOutputs, r_.api.Node_GetOutputs, node)) {
            out.text(field::NODE_OUTPUT, r_.name(value));
            if (value != nullptr && seen_.insert(r_.name(value)).second) body_.message(field::VALUE_INFO, described(value));
        }
        out.text(field::NODE_NAME, r_.text(r_.api.Node_GetName, node));
        out.text(field::NODE_OP, r_.text(r_.api.Node_GetOperatorType, node));
        out.text(field::NODE_DOMAIN, r_.text(r_.api.Node_GetDomain, node));
        if (whole)
            for (const OrtOpAttr *a : r_.list(r_.api.Node_GetNumAttributes, r_.api.Node_GetAttributes, node))
                out.message(field::NODE_ATTRIBUTE, attribute(a));
        body_.message(field::NODE, out);
    }

    Message attribute(const OrtOpAttr *a) const {
        Message out;
        int type = r_.get(r_.api.OpAttr_GetType, a);
        out.text(field::NAME, std::string(r_.get(r_.api.OpAttr_GetName, a)));
        auto kind = [&](int value) { out.integer(field::TYPE, value); };
        if (type == ATTR_TENSOR) {
            OrtValue *value = nullptr;
            r_.check(r_.api.OpAttr_GetTensorAttributeAsOrtValue(a, &value));
            Message found = tensor("", value);
            r_.api.ReleaseValue(value);
            out.message(field::T, found);
            kind(field::KIND_TENSOR);
            return out;
        }
        std::string data = type == ATTR_INT || type == ATTR_FLOAT ? scalar(a, type) : r_.attribute(a, type);
        if (type == ATTR_INT || type == ATTR_INTS) {
            for (size_t at = 0; at + 8 <= data.size(); at += 8) {
                int64_t value;
                std::memcpy(&value, &data[at], 8);
                out.integer(type == ATTR_INT ? field::I : field::INTS, value);
            }
            kind(type == ATTR_INT ? field::KIND_INT : field::KIND_INTS);
        } else if (type == ATTR_FLOAT || type == ATTR_FLOATS) {
            for (size_t at = 0; at + 4 <= data.size(); at += 4) out.real(type == ATTR_FLOAT ? field::F : field::FLOATS, &data[at]);
            kind(type == ATTR_FLOAT ? field::KIND_FLOAT : field::KIND_FLOATS);
        } else if (type == ATTR_STRING) {
            out.text(field::S, data);
            kind(field::KIND_STRING);
        } else if (type == ATTR_STRINGS) {
            for (size_t at = 0; at < data.size();) {
                std::string value = data.c_str() + at;
                out.text(field::STRINGS, value);
                at += value.size() + 1;
            }
            kind(field::KIND_STRINGS);
        }
        return out;
    }

    std::string scalar(const OrtOpAttr *a, int type) const {
        std::string data(type == ATTR_INT ? 8 : 4, '\0');
        size_t size = 0;
        r_.check(r_.api.ReadOpAttr(a, type, &data[0], data.size(), &size));
        return data;
    }

    void constant(const OrtValueInfo *value) {
        std::string name = r_.name(value);
        if (!seen_.insert(name).second) return;
        const OrtValue *found = r_.get(r_.api.ValueInfo_GetInitializerValue, value);
        if (found == nullptr) throw Failure{"onnxruntime does not show the constant " + name};
        body_.message(field::INITIALIZER, tensor(name, found));
    }

    Message tensor(const std::string &name, const OrtValue *value) const {
        OrtTensorTypeAndShapeInfo *info = nullptr;
        r_.check(r_.api.GetTensorTypeAndShape(value, &info));
        struct Release {
            const Runtime &r;
            OrtTensorTypeAndShapeInfo *info;
            ~Release() { r.api.ReleaseTensorTypeAndShapeInfo(info); }
        } release{r_, info};
        Message out;
        int type = r_.get(r_.api.GetTensorElementType, static_cast<const OrtTensorTypeAndShapeInfo *>(info));
        for (int64_t size : shape(info)) out.integer(field::DIMS, size);
        out.integer(field::DATA_TYPE, type);
        if (!name.empty()) out.text(field::TENSOR_NAME, name);
        if (type == ELEMENT_STRING) return out;  // the compiler has no strings, and leaves what reads them
        const void *data = nullptr;
        size_t bytes = 0;
        r_.check(r_.api.GetTensorSizeInBytes(value, &bytes));
        r_.check(r_.api.GetTensorData(value, &data));
        out.text(field::RAW_DATA, data, bytes);
        return out;
    }

    std::vector<int64_t> shape(const OrtTensorTypeAndShapeInfo *info) const {
        std::vector<int64_t> sizes(r_.get(r_.api.GetDimensionsCount, info));
        if (!sizes.empty()) r_.check(r_.api.GetDimensions(info, sizes.data(), sizes.size()));
        return sizes;
    }

    // A value with its type as far as it is known: open dimensions have no size, tensors of unknown rank no shape.
    Message described(const OrtValueInfo *value) const {
        Message out;
        out.text(field::VALUE_NAME, r_.name(value));
        const OrtTypeInfo *type = r_.get(r_.api.GetValueInfoTypeInfo, value);
        if (type == nullptr || r_.get(r_.api.GetOnnxTypeFromTypeInfo, type) != ONNX_TENSOR) return out;
        const OrtTensorTypeAndShapeInfo *info = r_.get(r_.api.CastTypeInfoToTensorInfo, type);
        if (info == nullptr) return out;
        Message kind, tensor, sizes;
        tensor.integer(field::ELEMENT, r_.get(r_.api.GetTensorElementType, info));
        std::vector<int64_t> found = shape(info);
        for (int64_t size : found) {
            Message dim;
            if (size >= 0) dim.integer(field::DIM_VALUE, size);
            sizes.message(field::DIM, dim);
        }
        // Before 1.24 a scalar and a tensor of unknown rank look the same.
        if (r_.has_shape ? r_.has_shape(info) : !found.empty()) tensor.message(field::SHAPE, sizes);
        kind.message(field::TENSOR_TYPE, tensor);
        out.message(field::VALUE_TYPE, kind);
        return out;
    }

    const Runtime &r_;
    Message body_;
    std::set<std::string> seen_;
};

}  // namespace tw
