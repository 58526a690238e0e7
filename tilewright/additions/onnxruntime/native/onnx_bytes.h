// ONNX models as bytes: the few messages of onnx.proto that a graph of onnxruntime needs, written in their wire format.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace tw {

// A message under construction. Field numbers are those of onnx.proto.
class Message {
  public:
    void integer(int field, int64_t value) {
        varint(uint64_t(field) << 3);
        varint(uint64_t(value));
    }
    void real(int field, const void *value) {  // a float of four bytes
        varint(uint64_t(field) << 3 | 5);
        bytes_.append(static_cast<const char *>(value), 4);
    }
    void text(int field, const void *data, size_t size) {
        varint(uint64_t(field) << 3 | 2);
        varint(size);
        bytes_.append(static_cast<const char *>(data), size);
    }
    void text(int field, const std::string &value) { text(field, value.data(), value.size()); }
    void message(int field, const Message &value) { text(field, value.bytes_); }
    void reserve(size_t size) { bytes_.reserve(size); }
    const std::string &bytes() const { return bytes_; }

  private:
    void varint(uint64_t value) {
        while (value >= 0x80) {
            bytes_.push_back(char(value | 0x80));
            value >>= 7;
        }
        bytes_.push_back(char(value));
    }

    std::string bytes_;
};

namespace field {
enum Model { IR_VERSION = 1, GRAPH = 7, OPSETS = 8 };
enum Opset { OPSET_DOMAIN = 1, OPSET_VERSION };
enum Graph { NODE = 1, GRAPH_NAME, INITIALIZER = 5, INPUT = 11, OUTPUT, VALUE_INFO };
enum Node { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP, NODE_ATTRIBUTE, NODE_DOMAIN = 7 };
enum Attribute { NAME = 1, F, I, S, T, FLOATS = 7, INTS, STRINGS, TYPE = 20 };
enum AttributeKind { KIND_FLOAT = 1, KIND_INT, KIND_STRING, KIND_TENSOR, KIND_FLOATS = 6, KIND_INTS, KIND_STRINGS };
enum Tensor { DIMS = 1, DATA_TYPE, TENSOR_NAME = 8, RAW_DATA };
enum Value { VALUE_NAME = 1, VALUE_TYPE };
enum Type { TENSOR_TYPE = 1 };
enum TensorType { ELEMENT = 1, SHAPE };
enum Shape { DIM = 1 };
enum Dim { DIM_VALUE = 1 };
}  // namespace field

}  // namespace tw
