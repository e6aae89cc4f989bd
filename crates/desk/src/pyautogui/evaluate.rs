//! Runs a program of the subset on a world, or rehearses it on one where nothing is known.

use super::builtin::iterate;
use super::gestures::{Arguments, seconds};
use super::modules;
use super::operate::{binary, compare, index, slice, truth, unary};
use super::player::Player;
use super::stop::{Outcome, Stop, refuse};
use super::strings;
use super::syntax::{Argument, BinaryOperator, Expression, FormatPart, Loop, Script, Statement, StatementKind, Target};
use super::text::Text;
use super::value::{Builtin, Function, Items, Module, Pair, Unknown, Value};
use super::world::World;

/// How much a program may compute. Agents' programs take a few hundred steps; one that takes more
/// than this is left to an interpreter that can be killed.
const MOST_STEPS: usize = 300_000;
/// How much it may build and print, in bytes.
const MOST_BYTES: usize = 16 << 20;
const MOST_OUTPUT: usize = 1 << 20;

pub(super) struct Machine<W> {
    pub(super) player: Player<W>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Where it is, for tracebacks.
    pub(super) line: usize,
    slots: Vec<Option<Value>>,
    steps: usize,
    bytes: usize,
    /// It read the environment.
    pub(super) read_variables: bool,
    /// Bytes of output that are not known yet.
    unknown_output: usize,
}

/// How a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl<W: World> Machine<W> {
    pub(super) fn new(world: W) -> Self {
        Self {
            player: Player::new(world),
            stdout: String::new(),
            stderr: String::new(),
            line: 1,
            slots: Vec::new(),
            steps: 0,
            bytes: 0,
            read_variables: false,
            unknown_output: 0,
        }
    }

    pub(super) fn run(&mut self, script: &Script) -> Outcome<()> {
        self.slots = vec![None; script.slots];
        let result = self.block(&script.body).map(|_| ());
        let complaints = self.player.world.complaints();
        // A display that failed later must not hide why the program stopped.
        if let Ok(complaints) = &complaints {
            self.stderr.push_str(complaints);
        }
        result.and(complaints.map(drop))
    }

    fn block(&mut self, statements: &[Statement]) -> Outcome<Flow> {
        for statement in statements {
            let flow = self.statement(statement)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn statement(&mut self, statement: &Statement) -> Outcome<Flow> {
        self.spend(1)?;
        self.line = statement.line;
        match &statement.kind {
            StatementKind::Expression(expression) => {
                self.evaluate(expression)?;
            }
            StatementKind::Assign(targets, value) => {
                let value = self.evaluate(value)?;
                for target in targets {
                    self.assign(target, value.clone())?;
                }
            }
            StatementKind::Augment(slot, operator, value) => {
                let old = self.load(*slot, None)?;
                if matches!(old, Value::List(_)) {
                    return refuse("a list that is changed in place");
                }
                let value = self.evaluate(value)?;
                let new = self.binary(*operator, &old, &value)?;
                self.store(*slot, new)?;
            }
            StatementKind::Bind(names) => {
                for (slot, value) in names {
                    self.store(*slot, value.clone())?;
                }
            }
            StatementKind::For { target, items, body, otherwise } => {
                let items = self.evaluate(items)?;
                for item in iterate(&items)? {
                    self.spend(1)?;
                    self.assign(target, item)?;
                    if self.block(body)? == Flow::Break {
                        return Ok(Flow::On);
                    }
                    self.line = statement.line;
                }
                return self.block(otherwise);
            }
            StatementKind::While { condition, body, otherwise } => {
                while self.is_true(condition)? {
                    if self.block(body)? == Flow::Break {
                        return Ok(Flow::On);
                    }
                    self.line = statement.line;
                }
                return self.block(otherwise);
            }
            StatementKind::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.is_true(condition)? {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
            StatementKind::Pass => {}
        }
        Ok(Flow::On)
    }

    fn assign(&mut self, target: &Target, value: Value) -> Outcome<()> {
        match target {
            Target::Name(slot) => self.store(*slot, value),
            Target::Many(targets) => {
                if value.weight() > targets.len() * 1000 || matches!(value, Value::Range { .. }) {
                    return refuse("an unusual thing to unpack");
                }
                let values: Vec<Value> = iterate(&value)?.collect();
                if values.len() != targets.len() {
                    return refuse("words that changed between versions");
                }
                targets.iter().zip(values).try_for_each(|(target, value)| self.assign(target, value))
            }
            Target::Attribute(module, name) => {
                let Value::Module(Module::PyAutoGui) = self.evaluate(module)? else {
                    return refuse("an attribute that is set");
                };
                match name.as_ref() {
                    "FAILSAFE" => match value {
                        Value::Bool(on) => self.player.fail_safe = on,
                        _ => return refuse("a setting that is neither on nor off"),
                    },
                    "PAUSE" => {
                        seconds(&value)?;
                        self.player.pause = value;
                    }
                    _ => return refuse("a setting that we don't have"),
                }
                Ok(())
            }
        }
    }

    fn store(&mut self, slot: usize, value: Value) -> Outcome<()> {
        if matches!(value, Value::Once(_)) {
            return refuse("a generator that is kept");
        }
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(value),
            None => return refuse("a name without a place"),
        }
        Ok(())
    }

    fn load(&self, slot: usize, builtin: Option<&Value>) -> Outcome<Value> {
        let value = self.slots.get(slot).and_then(Option::as_ref).or(builtin);
        value.map_or_else(|| refuse("a name that is not there: Python may suggest another"), |value| Ok(value.clone()))
    }

    fn evaluate(&mut self, expression: &Expression) -> Outcome<Value> {
        self.spend(1)?;
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(slot, builtin) => self.load(*slot, builtin.as_ref()),
            Expression::Tuple(items) => {
                let items = self.arguments(items)?;
                self.build(Value::tuple(items)?)
            }
            Expression::List(items) => {
                let items = self.arguments(items)?;
                self.build(Value::list(items)?)
            }
            Expression::Format(parts) => self.format(parts),
            Expression::Binary(operator, operands) => {
                let left = self.evaluate(&operands.0)?;
                let right = self.evaluate(&operands.1)?;
                self.binary(*operator, &left, &right)
            }
            Expression::Unary(operator, operand) => {
                let operand = self.evaluate(operand)?;
                unary(*operator, &operand)
            }
            Expression::Logic(and, values) => {
                let mut last = Value::None;
                for (i, value) in values.iter().enumerate() {
                    last = self.evaluate(value)?;
                    if i + 1 < values.len() && truth(&last)? != *and {
                        break;
                    }
                }
                Ok(last)
            }
            Expression::Compare(first, rest) => self.compare(first, rest),
            Expression::Choice(parts) => {
                let (condition, then, otherwise) = parts.as_ref();
                if self.is_true(condition)? { self.evaluate(then) } else { self.evaluate(otherwise) }
            }
            Expression::Attribute(value, name) => {
                let value = self.evaluate(value)?;
                self.attribute(&value, name)
            }
            Expression::Index(parts) => {
                let value = self.evaluate(&parts.0)?;
                let place = self.evaluate(&parts.1)?;
                match (&value, &place) {
                    (Value::Module(Module::Environ), Value::Str(name)) => self.variable(name),
                    _ => {
                        self.spend(value.weight())?;
                        index(&value, &place)
                    }
                }
            }
            Expression::Slice(value, bounds) => {
                let value = self.evaluate(value)?;
                let mut known = [None; 3];
                for (known, bound) in known.iter_mut().zip(bounds) {
                    *known = match bound {
                        None => None,
                        Some(bound) => match self.evaluate(bound)? {
                            Value::Int(n) => Some(n),
                            Value::None => None,
                            _ => return refuse("a bound that is no whole number"),
                        },
                    };
                }
                self.spend(value.weight())?;
                self.build(slice(&value, known)?)
            }
            Expression::Call { function, positional, keywords } => {
                let callee = match function.as_ref() {
                    Expression::Attribute(value, name) => (self.evaluate(value)?, Some(name)),
                    function => (self.evaluate(function)?, None),
                };
                let mut arguments = Arguments { positional: self.arguments(positional)?, keywords: Vec::new() };
                for (name, value) in keywords {
                    let value = self.evaluate(value)?;
                    arguments.keywords.push((name.clone(), value));
                }
                self.call(callee.0, callee.1.map(|name| name.as_ref()), &arguments)
            }
            Expression::Comprehension { lazy, element, loops } => {
                let mut values = Vec::new();
                for each in loops {
                    self.forget(&each.target);
                }
                self.comprehend(element, loops, &mut values)?;
                let items = Items::new(values)?;
                self.build(if *lazy { Value::Once(items) } else { Value::List(items) })
            }
        }
    }

    fn arguments(&mut self, arguments: &[Argument]) -> Outcome<Vec<Value>> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match argument {
                Argument::One(value) => values.push(self.evaluate(value)?),
                Argument::Star(items) => {
                    let items = self.evaluate(items)?;
                    for item in iterate(&items)? {
                        self.spend(1)?;
                        values.push(item);
                    }
                }
            }
        }
        Ok(values)
    }

    fn call(&mut self, callee: Value, method: Option<&str>, arguments: &Arguments) -> Outcome<Value> {
        self.spend(arguments.positional.iter().map(Value::weight).sum::<usize>())?;
        let once = |value: &Value| matches!(value, Value::Once(_));
        let takes_generators = |function: &Value| {
            use Builtin::{List, Max, Min, Sum, Tuple};
            matches!(function, Value::Function(Function::Builtin(List | Tuple | Sum | Min | Max)))
        };
        let function = match (&callee, method) {
            (Value::Str(text), Some(method)) => {
                if arguments.positional.iter().any(once) && method != "join" {
                    return refuse("a generator in an unusual place");
                }
                self.spend(callee.weight())?;
                let value = strings::call(text, method, arguments)?;
                return self.build(value);
            }
            (callee, Some(name)) => self.attribute(callee, name)?,
            (_, None) => callee,
        };
        if arguments.positional.iter().any(once) && !takes_generators(&function)
            || arguments.keywords.iter().any(|(_, value)| once(value))
        {
            return refuse("a generator in an unusual place");
        }
        match function {
            Value::Function(Function::Builtin(function)) => {
                let value = self.call_builtin(function, arguments)?;
                self.build(value)
            }
            Value::Function(Function::Gesture(gesture)) => {
                self.player.play(gesture, arguments)?;
                Ok(Value::None)
            }
            _ => refuse("a call of something that is no function of ours"),
        }
    }

    fn attribute(&mut self, value: &Value, name: &str) -> Outcome<Value> {
        let found = match (value, name) {
            (Value::Module(Module::PyAutoGui), "PAUSE") => Some(self.player.pause.clone()),
            (Value::Module(Module::PyAutoGui), "FAILSAFE") => Some(Value::Bool(self.player.fail_safe)),
            (Value::Module(module), name) => modules::attribute(*module, name),
            (Value::Pair(pair, items), name) => field(*pair, items, name),
            _ => None,
        };
        found.map_or_else(|| refuse("an attribute that is not there: Python may suggest another"), Ok)
    }

    fn compare(&mut self, first: &Expression, rest: &[(super::syntax::Comparison, Expression)]) -> Outcome<Value> {
        let mut left = self.evaluate(first)?;
        let mut result = Value::Bool(true);
        for (i, (comparison, right)) in rest.iter().enumerate() {
            let right = self.evaluate(right)?;
            self.spend(left.weight() + right.weight())?;
            result = compare(*comparison, &left, &right)?;
            if i + 1 < rest.len() && !truth(&result)? {
                break;
            }
            left = right;
        }
        Ok(result)
    }

    fn format(&mut self, parts: &[FormatPart]) -> Outcome<Value> {
        let mut text = Text::default();
        for part in parts {
            match part {
                FormatPart::Text(part) => text.push(part),
                FormatPart::Value { value, representation, specification } => {
                    let value = self.evaluate(value)?;
                    self.spend(value.weight())?;
                    if *representation {
                        text.push_repr_of(&value)?;
                    } else {
                        text.push_formatted(&value, specification)?;
                    }
                }
            }
            super::operate::check_length(text.text.len() + text.unknown.unwrap_or(0))?;
        }
        self.build(text.into_value())
    }

    fn comprehend(&mut self, element: &Expression, loops: &[Loop], values: &mut Vec<Value>) -> Outcome<()> {
        let Some((this, rest)) = loops.split_first() else {
            let value = self.evaluate(element)?;
            values.push(value);
            return Ok(());
        };
        let items = self.evaluate(&this.items)?;
        'items: for item in iterate(&items)? {
            self.spend(1)?;
            self.assign(&this.target, item)?;
            for condition in &this.conditions {
                if !self.is_true(condition)? {
                    continue 'items;
                }
            }
            self.comprehend(element, rest, values)?;
        }
        Ok(())
    }

    /// A comprehension starts with its own names unbound.
    fn forget(&mut self, target: &Target) {
        match target {
            Target::Name(slot) => {
                if let Some(place) = self.slots.get_mut(*slot) {
                    *place = None;
                }
            }
            Target::Many(targets) => targets.iter().for_each(|target| self.forget(target)),
            Target::Attribute(..) => {}
        }
    }

    fn is_true(&mut self, condition: &Expression) -> Outcome<bool> {
        let value = self.evaluate(condition)?;
        truth(&value)
    }

    fn binary(&mut self, operator: BinaryOperator, left: &Value, right: &Value) -> Outcome<Value> {
        self.spend(left.weight() + right.weight())?;
        let value = binary(operator, left, right)?;
        self.build(value)
    }

    pub(super) fn write(&mut self, text: Text, to_stderr: bool) -> Outcome<()> {
        self.unknown_output += text.unknown.unwrap_or(0);
        if to_stderr {
            let complaints = self.player.world.complaints()?;
            self.stderr.push_str(&complaints);
        }
        let stream = if to_stderr { &mut self.stderr } else { &mut self.stdout };
        stream.push_str(&text.text);
        if self.player.world.rehearsing() && self.stdout.len() + self.stderr.len() + self.unknown_output > MOST_OUTPUT {
            return refuse("too much output");
        }
        Ok(())
    }

    /// Charges for something new. Only rehearsals mind: what they let pass stays within bounds.
    fn build(&mut self, value: Value) -> Outcome<Value> {
        self.bytes += match &value {
            Value::Str(text) => text.len(),
            Value::Unknown(Unknown::Str(length)) => *length,
            Value::Tuple(items) | Value::List(items) | Value::Once(items) => items.len() * size_of::<Value>(),
            _ => 0,
        };
        if self.bytes > MOST_BYTES && self.player.world.rehearsing() {
            return refuse("too much memory");
        }
        Ok(value)
    }

    fn spend(&mut self, steps: usize) -> Outcome<()> {
        self.steps += steps;
        if self.steps > MOST_STEPS && self.player.world.rehearsing() {
            return Err(Stop::Refuse("too many steps"));
        }
        Ok(())
    }
}

fn field(pair: Pair, items: &[Value], name: &str) -> Option<Value> {
    let place = pair.fields().iter().position(|field| *field == name)?;
    items.get(place).cloned()
}
