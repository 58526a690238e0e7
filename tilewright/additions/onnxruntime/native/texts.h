// Texts that Python writes into its copy of the library, behind the marks (`tilewright.common.native.with_texts`).
#pragma once

// Neither static nor constant, so that no compiler takes the texts that stand here for those that will.
extern "C" {
char tw_python[4200] = "TW_PYTHON=";
char tw_root[4200] = "TW_ROOT=";
char tw_version[64] = "TW_VERSION=";
}

namespace tw {

// The Python that runs the compiler process.
inline const char *python_path() { return tw_python + sizeof "TW_PYTHON=" - 1; }

// The folder it imports tilewright from.
inline const char *import_root() { return tw_root + sizeof "TW_ROOT=" - 1; }

// The version of Tilewright.
inline const char *own_version() { return tw_version + sizeof "TW_VERSION=" - 1; }

}  // namespace tw
