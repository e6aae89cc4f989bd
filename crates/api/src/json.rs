//! Reading JSON in which an object is an object.
//!
//! serde takes a list for a struct, as its fields in the order of their declaration, which is no part of any promise. What comes
//! from outside is read by [`from_slice`], which refuses such a list at any depth.
//!
//! serde's derives buffer what is `tag`ged, `flatten`ed or `untagged`, and read it again on their own; a struct inside of such a type
//! is read by [`object`] (`deserialize_with`).

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::fmt;

/// Reads a whole text.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = T::deserialize(Strict(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// Reads a value that was parsed already.
pub fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> serde_json::Result<T> {
    T::deserialize(Strict(value))
}

/// Whether a text was refused because it has a list in the place of an object.
pub fn is_list(error: &serde_json::Error) -> bool {
    error.to_string().contains(LIST)
}

/// For `deserialize_with`.
pub fn object<'de, D: Deserializer<'de>, T: serde::Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(Strict(deserializer))
}

/// How such a list is refused. serde makes its errors of texts, so this is all there is to know one by.
const LIST: &str = "invalid type: a list, expected an object";

/// How derives describe enums whose variant is named inside of the object. They take a list too: of the name and the rest.
const TAGGED: &str = "internally tagged enum";

/// Reads as its inner one does, but for lists in the place of structs.
struct Strict<T>(T);

/// Whether a list may come where a value is read.
#[derive(Clone, Copy)]
enum Lists {
    Fine,
    /// It stands for a struct.
    Refused,
    /// Only the visitor knows.
    AskVisitor,
}

struct Visit<V> {
    visitor: V,
    lists: Lists,
}

macro_rules! read_plainly {
    ($($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$name(Visit { visitor, lists: Lists::Fine })
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    read_plainly! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit
        deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Visit { visitor, lists: Lists::AskVisitor })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Visit { visitor, lists: Lists::Refused })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Visit { visitor, lists: Lists::Fine })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Visit { visitor, lists: Lists::Fine })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, Visit { visitor, lists: Lists::Fine })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, length, Visit { visitor, lists: Lists::Fine })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Visit { visitor, lists: Lists::Fine })
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit_plainly {
    ($($name:ident: $value:ty),* $(,)?) => {
        $(fn $name<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.visitor.$name(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Visit<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(text)
    }

    visit_plainly! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128, visit_u8: u8,
        visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32, visit_f64: f64, visit_char: char,
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        let refused = match self.lists {
            Lists::Fine => false,
            Lists::Refused => true,
            Lists::AskVisitor => (&self.visitor as &dyn Expected).to_string().starts_with(TAGGED),
        };
        if refused {
            return Err(A::Error::custom(LIST));
        }
        self.visitor.visit_seq(Strict(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Strict(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(value, variant)| (value, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Visit { visitor, lists: Lists::Fine })
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Visit { visitor, lists: Lists::Refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Batch;
    use crate::desk::NewDesk;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        name: Option<String>,
        inner: Option<Inner>,
        many: Vec<Inner>,
        named: BTreeMap<String, Inner>,
        pair: (u8, u8),
        any: serde_json::Value,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        number: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Plain,
        Shaped { number: u8 },
        Pair(u8, u8),
    }

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        from_slice(text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_list_is_no_object_at_any_depth() {
        let whole = r#"{"name": "a", "inner": {"number": 1}, "many": [{"number": 2}], "named": {"x": {"number": 3}}, "pair": [4, 5],
                        "any": [[6], {"y": [7]}]}"#;
        let read_whole: Outer = read(whole).unwrap();
        assert_eq!(read_whole, serde_json::from_str(whole).unwrap(), "what is right is read as ever");
        for text in [
            "[]",
            r#"["a"]"#,
            r#"{"inner": [1]}"#,
            r#"{"many": [[2]]}"#,
            r#"{"named": {"x": [3]}}"#,
            r#"{"inner": {"number": 1}} []"#,
        ] {
            let told = read::<Outer>(text).unwrap_err();
            assert!(told.contains("expected an object at") || told.contains("trailing"), "{text}: {told}");
        }
        assert_eq!(read::<Choice>(r#""plain""#), Ok(Choice::Plain));
        assert_eq!(read::<Choice>(r#"{"pair": [1, 2]}"#), Ok(Choice::Pair(1, 2)));
        assert_eq!(read::<Choice>(r#"{"shaped": {"number": 1}}"#), Ok(Choice::Shaped { number: 1 }));
        assert!(read::<Choice>(r#"{"shaped": [1]}"#).is_err());
        assert!(from_value::<Outer>(serde_json::json!({"inner": [1]})).is_err());
    }

    #[test]
    fn requests_with_lists_for_objects_are_refused() {
        for text in
            [r#"{"resources": [1, 2, 3]}"#, r#"{"policy": []}"#, r#"{"screen": [800, 600]}"#, r#"{"volumes": [["v", "/v"]]}"#]
        {
            assert!(read::<NewDesk>(text).is_err(), "{text}");
        }
        for actions in [
            r#"{"do": "move", "to": {"x": 1, "y": 2}}"#,
            r#"{"do": "click"}"#,
            r#"{"do": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}"#,
        ] {
            read::<Batch>(&format!(
                r#"{{"actions": [{actions}], "screenshot": {{"region": {{"x": 0, "y": 0, "width": 1, "height": 1}}}}}}"#
            ))
            .unwrap();
        }
        for actions in [
            r#"["wait", 5]"#,
            r#"{"do": "move", "to": [1, 2]}"#,
            r#"{"do": "click", "at": [1, 2]}"#,
            r#"{"do": "drag", "path": [[1, 2]]}"#,
        ] {
            assert!(read::<Batch>(&format!(r#"{{"actions": [{actions}]}}"#)).is_err(), "{actions}");
        }
        for picture in ["[]", r#"["png"]"#, r#"{"region": [0, 0, 1, 1]}"#] {
            assert!(read::<Batch>(&format!(r#"{{"actions": [], "screenshot": {picture}}}"#)).is_err(), "{picture}");
        }
    }
}
