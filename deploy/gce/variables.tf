variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where desks live."
  type        = string
  default     = "us-central1"
}

variable "zones" {
  description = "Zones of the region, the preferred one first."
  type        = list(string)
  default     = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]
}

variable "name" {
  description = "With which the names of everything here begin."
  type        = string
  default     = "hotdesk"

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{0,19}$", var.name))
    error_message = "The name has small letters, digits and dashes, at most 20."
  }
}

variable "cidr" {
  description = "Addresses of desks: /20 has room for 4,000."
  type        = string
  default     = "10.77.0.0/20"
}

variable "gateway_cidr" {
  description = "Addresses of the machine, or the machines, that run `hotdesk serve`. They alone reach desks."
  type        = string
  default     = "10.77.16.0/28"
}

variable "administrators" {
  description = "Addresses from which people and agents reach the gateway on port 7700. Empty: only from inside the network."
  type        = list(string)
  default     = []
}

variable "internet" {
  description = "Whether desks reach the internet, through Cloud NAT; they have no address there in any case."
  type        = bool
  default     = true
}

variable "bucket" {
  description = "The bucket that golden disks are imported from. Its name is unique in the world."
  type        = string
}

variable "image_family" {
  description = "The family of the golden image of the instance group's desks."
  type        = string
  default     = "hotdesk-base"
}

variable "machine_type" {
  description = "The machine type of the instance group's desks."
  type        = string
  default     = "e2-standard-2"
}

variable "disk_gb" {
  description = "The boot disk of the instance group's desks."
  type        = number
  default     = 20
}

variable "spot" {
  description = "Whether the instance group's desks are spot machines."
  type        = bool
  default     = false
}

variable "group" {
  description = "Whether to make an instance group of desks that no fleet manages; it begins with none."
  type        = bool
  default     = true
}
