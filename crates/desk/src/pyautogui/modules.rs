//! Modules that a program may import, and what it may take from them.

use super::easing::{Easing, SAME_MATH};
use super::gestures::Gesture;
use super::value::{Builtin, Function, Module, Value};

/// Modules that do nothing when they are imported. PyAutoGUI itself brings those that are not in
/// Python's library. Using anything of them is for the real interpreter.
const INERT: &[&str] = &[
    "collections",
    "datetime",
    "functools",
    "itertools",
    "json",
    "pathlib",
    "pyperclip",
    "random",
    "re",
    "shutil",
    "string",
    "subprocess",
    "tempfile",
    "typing",
];

pub(super) fn module(name: &str) -> Option<Module> {
    Some(match name {
        "pyautogui" => Module::PyAutoGui,
        "time" => Module::Time,
        "platform" => Module::Platform,
        "os" => Module::Os,
        "os.path" => Module::OsPath,
        "sys" => Module::Sys,
        "math" => Module::Math,
        name if INERT.contains(&name) => Module::Other,
        _ => return None,
    })
}

/// `module.name`, if it always is the same.
pub(super) fn attribute(module: Module, name: &str) -> Option<Value> {
    Some(match (module, name) {
        (Module::PyAutoGui, "sleep") | (Module::Time, "sleep") => Value::builtin(Builtin::Sleep),
        (Module::PyAutoGui, "position") => Value::builtin(Builtin::Position),
        (Module::PyAutoGui, "size" | "resolution") => Value::builtin(Builtin::Size),
        (Module::PyAutoGui, "LEFT") => Value::text("left"),
        (Module::PyAutoGui, "MIDDLE") => Value::text("middle"),
        (Module::PyAutoGui, "RIGHT") => Value::text("right"),
        (Module::PyAutoGui, "PRIMARY") => Value::text("primary"),
        (Module::PyAutoGui, "SECONDARY") => Value::text("secondary"),
        (Module::PyAutoGui, name) => match Easing::named(name) {
            Some(easing) => Value::Function(Function::Easing(easing)),
            None => Value::Function(Function::Gesture(Gesture::named(name)?)),
        },
        (Module::Platform, "system") => Value::builtin(Builtin::PlatformSystem),
        (Module::Os, "getenv") | (Module::Environ, "get") => Value::builtin(Builtin::GetVariable),
        (Module::Os, "environ") => Value::Module(Module::Environ),
        (Module::Os, "path") => Value::Module(Module::OsPath),
        (Module::OsPath, "join") => Value::builtin(Builtin::JoinPath),
        (Module::OsPath, "expanduser") => Value::builtin(Builtin::ExpandUser),
        (Module::Sys, "exit") => Value::builtin(Builtin::Exit),
        (Module::Sys, "stdout") => Value::Stream(false),
        (Module::Sys, "stderr") => Value::Stream(true),
        (Module::Sys, "platform") => Value::text("linux"),
        (Module::Math, "pi") => Value::Float(std::f64::consts::PI),
        (Module::Math, "floor") => Value::builtin(Builtin::Floor),
        (Module::Math, "ceil") => Value::builtin(Builtin::Ceil),
        (Module::Math, "sqrt") => Value::builtin(Builtin::SquareRoot),
        (Module::Math, "sin") if SAME_MATH => Value::builtin(Builtin::Sine),
        (Module::Math, "cos") if SAME_MATH => Value::builtin(Builtin::Cosine),
        _ => return None,
    })
}

/// Names that are there without an import.
pub(super) fn builtin(name: &str) -> Option<Value> {
    Some(Value::builtin(match name {
        "print" => Builtin::Print,
        "len" => Builtin::Len,
        "range" => Builtin::Range,
        "int" => Builtin::Int,
        "float" => Builtin::Float,
        "str" => Builtin::Str,
        "repr" => Builtin::Repr,
        "bool" => Builtin::Bool,
        "abs" => Builtin::Abs,
        "min" => Builtin::Min,
        "max" => Builtin::Max,
        "sum" => Builtin::Sum,
        "round" => Builtin::Round,
        "chr" => Builtin::Chr,
        "ord" => Builtin::Ord,
        "list" => Builtin::List,
        "tuple" => Builtin::Tuple,
        "enumerate" => Builtin::Enumerate,
        "zip" => Builtin::Zip,
        "reversed" => Builtin::Reversed,
        "exit" | "quit" => Builtin::Exit,
        "__name__" => return Some(Value::text("__main__")),
        _ => return None,
    }))
}
